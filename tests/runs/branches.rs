//! A graph of the repository whose branches run at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::machine::{Reducer, TopologyRoute};
use graph_runtime::testing::{FakeAnswer, FakeScript, Fakes};
use graph_runtime::{
    ActionError, Call, Category, Machine, MemoryStore, Options, RunError, RunId, Runtime, SecretKey, Store, audit,
};
use state_graphs::tools::{files_count, files_list, market_quote, shop_charge_card, shop_look_up};
use state_graphs::{CheckedOrder, FileReport, checked_order, file_report};
use tokio::sync::{Barrier, Notify};

/// The shops of a check.
#[derive(Clone)]
struct Market {
    fakes: Fakes,
    /// The names of the calls that returned.
    returned: Arc<Mutex<Vec<&'static str>>>,
    /// How often the other shop was asked.
    asked: Arc<AtomicU64>,
}

/// Shops that answer at once, or when as many calls are in progress. Ours has no price for some calls, and theirs is busy for some.
fn market(together: usize, broken: u64, busy: u64) -> Market {
    let (returned, asked) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
    let (barrier, broken) = (Arc::new(Barrier::new(together)), Arc::new(AtomicU64::new(broken)));
    let answer = {
        let returned = Arc::clone(&returned);
        move |name: &'static str| {
            let (returned, barrier) = (Arc::clone(&returned), Arc::clone(&barrier));
            async move {
                barrier.wait().await;
                returned.lock().unwrap().push(name);
            }
        }
    };
    let look_up = {
        let answer = answer.clone();
        move |_: &Call, _| {
            let answered = answer("stock");
            async move {
                answered.await;
                Ok(shop_look_up::Output { price_cents: 450, in_stock: 1 })
            }
        }
    };
    let quote = {
        let asked = Arc::clone(&asked);
        move |_: &Call, params: market_quote::Params| {
            let is_ours = params.shop == "ours";
            let is_busy = !is_ours && asked.fetch_add(1, Ordering::Relaxed) < busy;
            let (broken, answered) = (Arc::clone(&broken), answer(if is_ours { "ours" } else { "theirs" }));
            async move {
                if is_busy {
                    return Err(ActionError::new(Category::Transient, "busy"));
                }
                if is_ours && broken.load(Ordering::Relaxed) > 0 {
                    // The others have returned by then.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    broken.fetch_sub(1, Ordering::Relaxed);
                    return Err(ActionError::permanent("no price today"));
                }
                answered.await;
                let price_cents = if is_ours { 450 } else { 480 };
                Ok(market_quote::Output { shop: params.shop, price_cents })
            }
        }
    };
    let charge = {
        let returned = Arc::clone(&returned);
        move |_: &Call, params: shop_charge_card::Params| {
            returned.lock().unwrap().push("charge");
            Ok(shop_charge_card::Output { receipt: format!("{} cents", params.price_cents) })
        }
    };
    let fakes = Fakes::new()
        .on(shop_look_up::FAKE, FakeScript::always(FakeAnswer::with_async(look_up)))
        .on(market_quote::FAKE, FakeScript::always(FakeAnswer::with_async(quote)))
        .on(shop_charge_card::FAKE, FakeScript::always(FakeAnswer::with(charge)));
    Market { fakes, returned, asked }
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
    let market = market(3, 0, 0);
    let run = runtime(&MemoryStore::new()).start(CheckedOrder::new(market.fakes), inputs()).await.unwrap();
    let finished = tokio::time::timeout(Duration::from_secs(60), run).await.unwrap().unwrap();
    assert_eq!((finished.output, finished.steps), (shipped(), 7));
}

#[tokio::test]
async fn finished_checks_are_not_repeated_after_a_failure() {
    let market = market(1, 1, 0);
    let (store, id) = (MemoryStore::new(), RunId::new("checked").unwrap());
    let runtime = runtime(&store);
    let graph = CheckedOrder::new(market.fakes.clone());
    let error = runtime.start_as(id.clone(), graph.clone(), inputs()).await.unwrap().await.unwrap_err();
    assert_eq!(error.to_string(), "node `price` failed: no price today");
    let run = runtime.resume(graph.clone(), &id).await.unwrap();
    assert_eq!(run.await.unwrap().output, shipped());
    let names = market.returned.lock().unwrap().clone();
    let count = |name: &str| names.iter().filter(|known| **known == name).count();
    assert_eq!(["stock", "theirs", "ours", "charge"].map(count), [1; 4], "{names:?}");
    let records = store.load(&id).await.unwrap();
    let key = SecretKey::from_seed(&[7; 32]).public();
    audit(&graph, &id, &records, &key, None).unwrap();
}

/// Files whose names say how they are counted; `broken` ones cannot be read.
fn shelf(files: &[impl AsRef<str>]) -> Fakes {
    let files = files.iter().map(|file| file.as_ref().to_owned()).collect();
    let count = |_: &Call, params: files_count::Params| async move {
        let number = i64::try_from(params.path.len()).unwrap();
        // Shorter names take longer.
        tokio::time::sleep(Duration::from_millis(u64::try_from(30 - number).unwrap())).await;
        if params.path.starts_with("broken") {
            return Err(ActionError::permanent("it is broken"));
        }
        let kind = params.path.rsplit('.').next().unwrap_or_default().to_owned();
        Ok(files_count::Output { kind, lines: number, words: 2 * number })
    };
    Fakes::new()
        .on(files_list::FAKE, FakeScript::returns(files_list::Output { files }))
        .on(files_count::FAKE, FakeScript::always(FakeAnswer::with_async(count)))
}

async fn report(files: &[&str]) -> file_report::Output {
    let (store, id) = (MemoryStore::new(), RunId::new("report").unwrap());
    let builder = Runtime::builder().grant("rye.execute.tool.files.*").unwrap();
    let runtime = builder.store(store.clone()).sign_with(SecretKey::from_seed(&[7; 32])).build().unwrap();
    let inputs = file_report::Inputs { directory: "shelf".into() };
    let run = runtime.start_as(id.clone(), FileReport::new(shelf(files)), inputs).await.unwrap();
    let output = run.await.unwrap().output;
    let records = store.load(&id).await.unwrap();
    audit(&FileReport::new(shelf(files)), &id, &records, &SecretKey::from_seed(&[7; 32]).public(), None).unwrap();
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
    let topology = FileReport::new(shelf(&[""; 0])).graph().topology();
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
    let run = runtime.start(FileReport::new(shelf(&names)), inputs).await.unwrap();
    let error = run.await.unwrap_err().to_string();
    assert_eq!(error, "node `list` failed: `over` has 1001 elements, and branches may begin for 1000");
}

#[tokio::test]
async fn a_step_that_exceeds_the_limit_of_steps_does_not_begin() {
    let names: Vec<String> = (0..20).map(|number| format!("{number}.rs")).collect();
    let runtime = Runtime::builder().grant("rye.execute.tool.files.*").unwrap().build().unwrap();
    let inputs = file_report::Inputs { directory: "shelf".into() };
    let options = Options { max_steps: Some(20), ..Options::default() };
    let run = runtime.start_with(options, FileReport::new(shelf(&names)), inputs).await.unwrap();
    let error = run.await.unwrap_err();
    assert!(matches!(error, RunError::MaxSteps { max_steps: 20, steps: 1, .. }), "{error:?}");
}

/// A hundred files, of which one may not be counted until the run is cancelled.
#[derive(Clone)]
struct Crowd {
    fakes: Fakes,
    /// How many files were counted at a time.
    most: Arc<AtomicU64>,
    counted: Arc<Mutex<Vec<String>>>,
    waiting: Arc<Notify>,
}

fn crowd(waits: bool) -> Crowd {
    let (now, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, waiting) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
    let seen = (Arc::clone(&most), Arc::clone(&counted), Arc::clone(&waiting));
    let count = move |call: &Call, params: files_count::Params| {
        let (call, now, (most, counted, waiting)) = (call.clone(), Arc::clone(&now), seen.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::Relaxed);
            if waits && params.path == "50.rs" {
                waiting.notify_one();
                call.cancelled().await;
                return Err(ActionError::new(Category::Cancelled, "nobody waits for it"));
            }
            counted.lock().unwrap().push(params.path);
            Ok(files_count::Output { kind: "rs".into(), lines: 1, words: 1 })
        }
    };
    let files = (0..100).map(|number| format!("{number}.rs")).collect();
    let fakes = Fakes::new()
        .on(files_list::FAKE, FakeScript::returns(files_list::Output { files }))
        .on(files_count::FAKE, FakeScript::always(FakeAnswer::with_async(count)));
    Crowd { fakes, most, counted, waiting }
}

#[tokio::test]
async fn at_most_as_many_branches_run_at_a_time_as_the_route_says() {
    let crowd = crowd(false);
    let runtime = Runtime::builder().grant("rye.execute.tool.files.*").unwrap().build().unwrap();
    let inputs = file_report::Inputs { directory: "shelf".into() };
    let run = runtime.start(FileReport::new(crowd.fakes.clone()), inputs).await.unwrap();
    assert_eq!(run.await.unwrap().output.lines, 100);
    assert_eq!(crowd.most.load(Ordering::Relaxed), 8);
}

#[tokio::test]
async fn a_cancelled_run_keeps_the_results_of_its_finished_branches() {
    let crowd = crowd(true);
    let (store, id) = (MemoryStore::new(), RunId::new("cancelled").unwrap());
    let builder = Runtime::builder().grant("rye.execute.tool.files.*").unwrap();
    let runtime = builder.store(store.clone()).sign_with(SecretKey::from_seed(&[7; 32])).build().unwrap();
    let inputs = file_report::Inputs { directory: "shelf".into() };
    let run = runtime.start_as(id.clone(), FileReport::new(crowd.fakes.clone()), inputs).await.unwrap();
    let canceller = run.canceller();
    let (ended, ()) = tokio::join!(run, async {
        crowd.waiting.notified().await;
        canceller.cancel();
    });
    assert!(matches!(ended.unwrap_err(), RunError::Cancelled { .. }));
    let later = self::crowd(false);
    let run = runtime.resume(FileReport::new(later.fakes.clone()), &id).await.unwrap();
    assert_eq!(run.await.unwrap().output.lines, 100);
    let (first, second) = (crowd.counted.lock().unwrap().clone(), later.counted.lock().unwrap().clone());
    assert!(first.len() >= 50 && first.iter().all(|file| !second.contains(file)), "{first:?} {second:?}");
    let records = store.load(&id).await.unwrap();
    let key = SecretKey::from_seed(&[7; 32]).public();
    audit(&FileReport::new(shelf(&[""; 0])), &id, &records, &key, None).unwrap();
}

#[tokio::test]
async fn a_call_that_is_repeated_in_one_branch_repeats_no_other() {
    let market = market(1, 0, 2);
    let graph = CheckedOrder::new(market.fakes.clone());
    let run = runtime(&MemoryStore::new()).start(graph, inputs()).await.unwrap();
    assert_eq!(run.await.unwrap().output, shipped());
    let mut names = market.returned.lock().unwrap().clone();
    names.sort_unstable();
    assert_eq!(names, ["charge", "ours", "stock", "theirs"]);
    assert_eq!(market.asked.load(Ordering::Relaxed), 3);
}
