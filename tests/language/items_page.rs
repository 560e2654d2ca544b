//! The items that `docs/items.md` shows are what the page says. Their files are in `items`; `pages.rs` compares them with the page.

use graph_runtime::items::Directive;
use graph_signing::ItemKind;

#[test]
fn the_directive_on_the_page_is_read_as_the_page_says() {
    let mut directive = Directive::parse(include_str!("items/refund.md")).unwrap();
    let permissions: Vec<_> = directive.permissions.iter().map(|permission| permission.as_str()).collect();
    assert_eq!(permissions, ["rye.execute.tool.shop.*"]);
    directive.apply([("order".to_owned(), "o-1".into())].into_iter().collect()).unwrap();
    assert_eq!(directive.process[0].text, "Refund o-1, because: none.");
    assert!(directive.process_signed);
}

#[test]
fn a_header_in_a_code_block_is_covered() {
    let page = include_str!("items/refunds.md");
    assert!(page.contains("title: Refunds\n"));
    let kind = ItemKind::of(".ai/knowledge/shop/refunds.md", page);
    assert_eq!(kind.covered(page), Some(page));
}
