//! A graph of the repository whose branches run at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::{ActionError, Call, MemoryStore, RunId, Runtime, SecretKey, Store, audit};
use state_graphs::{CheckedOrder, FileReport, checked_order, file_report};
use tokio::sync::Barrier;

/// Shops that answer only when all three calls of the checks are in progress, or at once without a barrier.
#[derive(Default)]
struct Market {
    together: Option<Barrier>,
    /// The calls that failed once before they succeed.
    broken: AtomicU64,
    /// The idempotency key of each call that returned.
    returned: Mutex<Vec<(String, String)>>,
}

impl Market {
    async fn answer(&self, call: &Call, name: &str) {
        if let Some(together) = &self.together {
            together.wait().await;
        }
        self.returned.lock().unwrap().push((name.to_owned(), call.idempotency_key().to_string()));
    }
}

impl checked_order::Actions for Market {
    async fn shop_look_up(
        &self,
        call: &Call,
        _: checked_order::ShopLookUp,
    ) -> Result<checked_order::ShopLookUpResult, ActionError> {
        self.answer(call, "stock").await;
        Ok(checked_order::ShopLookUpResult { price_cents: 450, in_stock: 1 })
    }

    async fn market_quote(
        &self,
        call: &Call,
        params: checked_order::MarketQuote,
    ) -> Result<checked_order::MarketQuoteResult, ActionError> {
        if params.shop == "ours" && self.broken.load(Ordering::Relaxed) > 0 {
            // The others have returned by then.
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.broken.fetch_sub(1, Ordering::Relaxed);
            return Err(ActionError::permanent("no price today"));
        }
        self.answer(call, &params.shop).await;
        let price_cents = if params.shop == "ours" { 450 } else { 480 };
        Ok(checked_order::MarketQuoteResult { shop: params.shop, price_cents })
    }

    async fn shop_charge_card(
        &self,
        call: &Call,
        params: checked_order::ShopChargeCard,
    ) -> Result<checked_order::ShopChargeCardResult, ActionError> {
        self.returned.lock().unwrap().push(("charge".to_owned(), call.idempotency_key().to_string()));
        Ok(checked_order::ShopChargeCardResult { receipt: format!("{} cents", params.price_cents) })
    }
}

fn runtime(store: &MemoryStore) -> Runtime {
    let builder = Runtime::builder().grant("rye.execute.tool.shop.*").unwrap();
    let builder = builder.grant("rye.execute.tool.market.*").unwrap();
    builder.store(store.clone()).sign_with(SecretKey::from_seed(&[7; 32])).build().unwrap()
}

fn inputs() -> checked_order::Inputs {
    checked_order::Inputs { article: "tea".into(), card: "tok_1".into(), compare: true }
}

fn shipped() -> checked_order::Output {
    checked_order::Output::Shipped(checked_order::ShippedOutput {
        receipt: "450 cents".into(),
        cents: 450,
        other_cents: 480,
    })
}

#[tokio::test]
async fn the_checks_of_an_order_run_at_the_same_time() {
    let market = Market { together: Some(Barrier::new(3)), ..Market::default() };
    let run = runtime(&MemoryStore::new()).start(CheckedOrder::new(market), inputs()).await.unwrap();
    let finished = tokio::time::timeout(Duration::from_secs(60), run).await.unwrap().unwrap();
    assert_eq!((finished.output, finished.steps), (shipped(), 7));
}

#[tokio::test]
async fn finished_checks_are_not_repeated_after_a_failure() {
    let market = Arc::new(Market { broken: AtomicU64::new(1), ..Market::default() });
    let (store, id) = (MemoryStore::new(), RunId::new("checked").unwrap());
    let runtime = runtime(&store);
    let graph = CheckedOrder::sharing(Arc::clone(&market));
    let error = runtime.start_as(id.clone(), graph, inputs()).await.unwrap().await.unwrap_err();
    assert_eq!(error.to_string(), "node `price` failed: no price today");
    let run = runtime.resume(CheckedOrder::sharing(Arc::clone(&market)), &id).await.unwrap();
    assert_eq!(run.await.unwrap().output, shipped());
    let names: Vec<String> = market.returned.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
    let count = |name: &str| names.iter().filter(|known| *known == name).count();
    assert_eq!(["stock", "theirs", "ours", "charge"].map(count), [1; 4], "{names:?}");
    let records = store.load(&id).await.unwrap();
    let key = SecretKey::from_seed(&[7; 32]).public();
    audit(&CheckedOrder::new(Market::default()), &id, &records, &key, None).unwrap();
}

/// Files whose names say how they are counted; `broken` ones cannot be read.
struct Shelf(Vec<String>);

impl file_report::Actions for Shelf {
    async fn files_list(
        &self,
        _: &Call,
        _: file_report::FilesList,
    ) -> Result<file_report::FilesListResult, ActionError> {
        Ok(file_report::FilesListResult { files: self.0.clone() })
    }

    async fn files_count(
        &self,
        _: &Call,
        params: file_report::FilesCount,
    ) -> Result<file_report::FilesCountResult, ActionError> {
        let number = i64::try_from(params.path.len()).unwrap();
        // Shorter names take longer.
        tokio::time::sleep(Duration::from_millis(u64::try_from(30 - number).unwrap())).await;
        if params.path.starts_with("broken") {
            return Err(ActionError::permanent("it is broken"));
        }
        let kind = params.path.rsplit('.').next().unwrap_or_default().to_owned();
        Ok(file_report::FilesCountResult { kind, lines: number, words: 2 * number })
    }
}

async fn report(files: &[&str]) -> file_report::Output {
    let (store, id) = (MemoryStore::new(), RunId::new("report").unwrap());
    let builder = Runtime::builder().grant("rye.execute.tool.files.*").unwrap();
    let runtime = builder.store(store.clone()).sign_with(SecretKey::from_seed(&[7; 32])).build().unwrap();
    let shelf = || Shelf(files.iter().map(|file| (*file).to_owned()).collect());
    let inputs = file_report::Inputs { directory: "shelf".into() };
    let run = runtime.start_as(id.clone(), FileReport::new(shelf()), inputs).await.unwrap();
    let output = run.await.unwrap().output;
    let records = store.load(&id).await.unwrap();
    audit(&FileReport::new(shelf()), &id, &records, &SecretKey::from_seed(&[7; 32]).public(), None).unwrap();
    output
}

#[tokio::test]
async fn the_counts_of_files_are_added_up_in_the_order_of_the_list() {
    let output = report(&["a.rs", "broken", "bcd.md", "ef.rs"]).await;
    let files: Vec<(&str, i64)> = output.files.iter().map(|file| (file.path.as_str(), file.words)).collect();
    assert_eq!(files, [("a.rs", 8), ("bcd.md", 12), ("ef.rs", 10)]);
    assert_eq!(output.kinds, ["rs", "md"]);
    assert_eq!((output.lines, output.words, output.longest), (15, 30, 6));
    let unreadable: Vec<(&str, &str)> =
        output.unreadable.iter().map(|file| (file.path.as_str(), file.error.as_str())).collect();
    assert_eq!(unreadable, [("broken", "it is broken")]);
}

#[tokio::test]
async fn a_report_of_no_files_has_the_first_values() {
    let output = report(&[]).await;
    assert_eq!((output.files.len(), output.kinds.len(), output.lines, output.longest), (0, 0, 0, 0));
}
