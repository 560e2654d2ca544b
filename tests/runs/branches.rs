//! A graph of the repository whose branches run at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::machine::{Reducer, TopologyRoute};
use graph_runtime::{
    ActionError, Call, Category, Machine, MemoryStore, Options, RunError, RunId, Runtime, SecretKey, Store, audit,
};
use state_graphs::{CheckedOrder, FileReport, checked_order, file_report};
use tokio::sync::{Barrier, Notify};

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

#[test]
fn the_topology_of_a_graph_shows_its_branches_joins_and_channels() {
    let topology = FileReport::new(Shelf(Vec::new())).graph().topology();
    let node = |name: &str| topology.node(name).unwrap();
    let at = |name: &str| topology.nodes.iter().position(|node| node.name == name);
    assert_eq!(node("list").route, TopologyRoute::Each);
    assert!(node("list").route.begins_branches() && !node("count").route.begins_branches());
    let join = node("report").join.as_ref().unwrap();
    assert_eq!((join.fan, join.closes, join.need), (at("list"), true, None));
    assert_eq!(join.waits_for.iter().map(|&one| Some(one)).collect::<Vec<_>>(), [at("count"), at("unreadable")]);
    let reducer = |key: &str| topology.channels.get(key).map(Reducer::name);
    assert_eq!(
        ["files", "kinds", "longest", "directory"].map(reducer),
        [Some("append"), Some("union"), Some("max"), None]
    );
}

#[tokio::test]
async fn a_list_of_one_element_begins_one_branch() {
    let output = report(&["one.rs"]).await;
    assert_eq!(output.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["one.rs"]);
    assert_eq!((output.lines, output.longest), (6, 6));
}

#[tokio::test]
async fn a_list_with_more_elements_than_the_route_allows_begins_no_branch() {
    let names: Vec<String> = (0..1001).map(|number| format!("{number}.rs")).collect();
    let runtime = Runtime::builder().grant("rye.execute.tool.files.*").unwrap().build().unwrap();
    let inputs = file_report::Inputs { directory: "shelf".into() };
    let run = runtime.start(FileReport::new(Shelf(names)), inputs).await.unwrap();
    let error = run.await.unwrap_err().to_string();
    assert_eq!(error, "node `list` failed: `over` has 1001 elements, and branches may begin for 1000");
}

#[tokio::test]
async fn a_step_that_exceeds_the_limit_of_steps_does_not_begin() {
    let names: Vec<String> = (0..20).map(|number| format!("{number}.rs")).collect();
    let runtime = Runtime::builder().grant("rye.execute.tool.files.*").unwrap().build().unwrap();
    let inputs = file_report::Inputs { directory: "shelf".into() };
    let options = Options { max_steps: Some(20), ..Options::default() };
    let run = runtime.start_with(options, FileReport::new(Shelf(names)), inputs).await.unwrap();
    let error = run.await.unwrap_err();
    assert!(matches!(error, RunError::MaxSteps { max_steps: 20, steps: 1, .. }), "{error:?}");
}

/// Counts how many files are counted at a time. One of them waits until the run is cancelled.
#[derive(Default)]
struct Crowd {
    now: AtomicU64,
    most: AtomicU64,
    counted: Mutex<Vec<String>>,
    waits: bool,
    waiting: Notify,
}

impl file_report::Actions for Crowd {
    async fn files_list(
        &self,
        _: &Call,
        _: file_report::FilesList,
    ) -> Result<file_report::FilesListResult, ActionError> {
        Ok(file_report::FilesListResult { files: (0..100).map(|number| format!("{number}.rs")).collect() })
    }

    async fn files_count(
        &self,
        call: &Call,
        params: file_report::FilesCount,
    ) -> Result<file_report::FilesCountResult, ActionError> {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.now.fetch_sub(1, Ordering::Relaxed);
        if self.waits && params.path == "50.rs" {
            self.waiting.notify_one();
            call.cancelled().await;
            return Err(ActionError::new(Category::Cancelled, "nobody waits for it"));
        }
        self.counted.lock().unwrap().push(params.path);
        Ok(file_report::FilesCountResult { kind: "rs".into(), lines: 1, words: 1 })
    }
}

#[tokio::test]
async fn at_most_as_many_branches_run_at_a_time_as_the_route_says() {
    let crowd = Arc::new(Crowd::default());
    let runtime = Runtime::builder().grant("rye.execute.tool.files.*").unwrap().build().unwrap();
    let inputs = file_report::Inputs { directory: "shelf".into() };
    let run = runtime.start(FileReport::sharing(Arc::clone(&crowd)), inputs).await.unwrap();
    assert_eq!(run.await.unwrap().output.lines, 100);
    assert_eq!(crowd.most.load(Ordering::Relaxed), 8);
}

#[tokio::test]
async fn a_cancelled_run_keeps_the_results_of_its_finished_branches() {
    let crowd = Arc::new(Crowd { waits: true, ..Crowd::default() });
    let (store, id) = (MemoryStore::new(), RunId::new("cancelled").unwrap());
    let builder = Runtime::builder().grant("rye.execute.tool.files.*").unwrap();
    let runtime = builder.store(store.clone()).sign_with(SecretKey::from_seed(&[7; 32])).build().unwrap();
    let inputs = file_report::Inputs { directory: "shelf".into() };
    let run = runtime.start_as(id.clone(), FileReport::sharing(Arc::clone(&crowd)), inputs).await.unwrap();
    let canceller = run.canceller();
    let (ended, ()) = tokio::join!(run, async {
        crowd.waiting.notified().await;
        canceller.cancel();
    });
    assert!(matches!(ended.unwrap_err(), RunError::Cancelled { .. }));
    let later = Arc::new(Crowd::default());
    let run = runtime.resume(FileReport::sharing(Arc::clone(&later)), &id).await.unwrap();
    assert_eq!(run.await.unwrap().output.lines, 100);
    let (first, second) = (crowd.counted.lock().unwrap().clone(), later.counted.lock().unwrap().clone());
    assert!(first.len() >= 50 && first.iter().all(|file| !second.contains(file)), "{first:?} {second:?}");
    let records = store.load(&id).await.unwrap();
    let key = SecretKey::from_seed(&[7; 32]).public();
    audit(&FileReport::new(Shelf(Vec::new())), &id, &records, &key, None).unwrap();
}

/// A market whose other shop is busy twice.
#[derive(Default)]
struct Moody {
    market: Market,
    asked: AtomicU64,
}

impl checked_order::Actions for Moody {
    async fn shop_look_up(
        &self,
        call: &Call,
        params: checked_order::ShopLookUp,
    ) -> Result<checked_order::ShopLookUpResult, ActionError> {
        self.market.shop_look_up(call, params).await
    }

    async fn market_quote(
        &self,
        call: &Call,
        params: checked_order::MarketQuote,
    ) -> Result<checked_order::MarketQuoteResult, ActionError> {
        if params.shop == "theirs" && self.asked.fetch_add(1, Ordering::Relaxed) < 2 {
            return Err(ActionError::new(Category::Transient, "busy"));
        }
        self.market.market_quote(call, params).await
    }

    async fn shop_charge_card(
        &self,
        call: &Call,
        params: checked_order::ShopChargeCard,
    ) -> Result<checked_order::ShopChargeCardResult, ActionError> {
        self.market.shop_charge_card(call, params).await
    }
}

#[tokio::test]
async fn a_call_that_is_repeated_in_one_branch_repeats_no_other() {
    let moody = Arc::new(Moody::default());
    let run = runtime(&MemoryStore::new()).start(CheckedOrder::sharing(Arc::clone(&moody)), inputs()).await.unwrap();
    assert_eq!(run.await.unwrap().output, shipped());
    let mut names: Vec<String> = moody.market.returned.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
    names.sort_unstable();
    assert_eq!(names, ["charge", "ours", "stock", "theirs"]);
    assert_eq!(moody.asked.load(Ordering::Relaxed), 3);
}
