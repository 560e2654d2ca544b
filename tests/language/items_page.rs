//! The directive in `docs/items.md` can be read.

use graph_runtime::items::Directive;

#[test]
fn the_directive_on_the_page_is_read_as_the_page_says() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/items.md")).unwrap();
    let (_, block) = page.split_once("```xml\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let mut directive = Directive::parse(block).unwrap();
    let permissions: Vec<_> = directive.permissions.iter().map(|permission| permission.as_str()).collect();
    assert_eq!(permissions, ["rye.execute.tool.shop.*"]);
    directive.apply([("order".to_owned(), "o-1".into())].into_iter().collect()).unwrap();
    assert_eq!(directive.process[0].text, "Refund o-1, because: none.");
    assert!(directive.process_signed);
}
