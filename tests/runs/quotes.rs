//! A graph of the repository that takes the first two of three answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::machine::{Reducer, TopologyOf, TypedGraph};
use graph_runtime::observer::Event;
use graph_runtime::record::{Entry, Record};
use graph_runtime::testing::{FakeAnswer, FakeScript, Fakes};
use graph_runtime::{ActionError, Call, MemoryStore, Observer, RunId, Runtime, SecretKey, Status, Store, audit};
use state_graphs::tools::carriers_quote;
use state_graphs::{CarrierQuotes, carrier_quotes};

/// Notes its carrier if it is dropped before the call returned.
struct UntilReturned(String, Arc<Mutex<Vec<String>>>, bool);

impl Drop for UntilReturned {
    fn drop(&mut self) {
        if !self.2 {
            self.1.lock().unwrap().push(self.0.clone());
        }
    }
}

/// Carriers that answer after as many milliseconds as this says; `None` for one that is out of order. `dropped` gets the carriers whose
/// calls were dropped before they returned.
fn carriers(waits: [(&'static str, Option<u64>); 3], dropped: &Arc<Mutex<Vec<String>>>) -> Fakes {
    let dropped = Arc::clone(dropped);
    let quote = move |_: &Call, params: carriers_quote::Params| {
        let (_, wait) = *waits.iter().find(|(name, _)| *name == params.carrier).unwrap();
        let guard = UntilReturned(params.carrier, Arc::clone(&dropped), false);
        async move {
            let mut guard = guard;
            tokio::time::sleep(Duration::from_millis(wait.unwrap_or(1))).await;
            guard.2 = true;
            let wait = wait.ok_or_else(|| ActionError::permanent("it is out of order"))?;
            Ok(carriers_quote::Output { cents: 1_000 - i64::try_from(wait).unwrap(), days: 3 })
        }
    };
    Fakes::new().on(carriers_quote::FAKE, FakeScript::always(FakeAnswer::with_async(quote)))
}

/// Notes the nodes whose visits were cancelled.
#[derive(Default)]
struct Cancelled(Mutex<Vec<String>>);

impl Observer for Cancelled {
    fn observe(&self, event: &Event<'_>) {
        if let Event::StepCompleted { node, cancelled: true, .. } = event {
            self.0.lock().unwrap().push((*node).to_owned());
        }
    }
}

/// A run of the graph.
struct Ran {
    output: carrier_quotes::Output,
    status: Status,
    dropped: Vec<String>,
    cancelled: Vec<String>,
}

async fn ran(waits: [(&'static str, Option<u64>); 3]) -> Ran {
    let (store, id, cancelled) = (MemoryStore::new(), RunId::new("parcel").unwrap(), Arc::new(Cancelled::default()));
    let key = SecretKey::from_seed(&[7; 32]);
    let runtime = Runtime::builder().grant("rye.execute.tool.carriers.*").unwrap().observer(Arc::clone(&cancelled));
    let runtime = runtime.store(store.clone()).sign_with(key.clone()).build().unwrap();
    let dropped = Arc::default();
    let graph = CarrierQuotes::new(carriers(waits, &dropped));
    let run = runtime.start_as(id.clone(), graph.clone(), carrier_quotes::Inputs { grams: 500 }).await.unwrap();
    let finished = tokio::time::timeout(Duration::from_secs(60), run).await.unwrap().unwrap();
    let records = store.load(&id).await.unwrap();
    audit(&graph, &id, &records, &key.public(), None).unwrap();
    let recorded =
        records.iter().filter_map(|signed| match serde_json::from_str::<Record>(&signed.body).unwrap().entry {
            Entry::Step(step) => Some(step.visits.into_iter().filter(|visit| visit.cancelled).map(|visit| visit.node)),
            _ => None,
        });
    let recorded: Vec<String> = recorded.flatten().collect();
    let cancelled = cancelled.0.lock().unwrap().clone();
    assert_eq!(recorded, cancelled);
    let dropped = dropped.lock().unwrap().clone();
    Ran { output: finished.output, status: finished.status, dropped, cancelled }
}

fn quotes(output: &carrier_quotes::Output) -> (Option<i64>, Vec<&str>) {
    let (cents, quotes) = match output {
        carrier_quotes::Output::Pick(found) => (Some(found.cents), &found.quotes),
        carrier_quotes::Output::TooFew(found) => (None, &found.quotes),
    };
    (cents, quotes.iter().map(|quote| quote.carrier.as_str()).collect())
}

#[tokio::test]
async fn two_quotes_decide_and_the_third_call_is_dropped() {
    let ran = ran([("north", Some(60_000)), ("post", Some(30)), ("swift", Some(5))]).await;
    assert_eq!(quotes(&ran.output), (Some(970), vec!["post", "swift"]));
    assert_eq!(ran.status, Status::Completed);
    assert_eq!((ran.dropped, ran.cancelled), (vec!["north".to_owned()], vec!["north".to_owned()]));
}

#[tokio::test]
async fn a_carrier_that_fails_is_done_without() {
    let ran = ran([("north", Some(5)), ("post", None), ("swift", Some(30))]).await;
    assert_eq!(quotes(&ran.output), (Some(970), vec!["north", "swift"]));
    assert_eq!(ran.status, Status::CompletedWithErrors);
    assert!(ran.dropped.is_empty() && ran.cancelled.is_empty());
}

#[tokio::test]
async fn too_few_carriers_decide_as_soon_as_it_is_sure() {
    let ran = ran([("north", None), ("post", None), ("swift", Some(60_000))]).await;
    assert_eq!(quotes(&ran.output), (None, vec![]));
    assert_eq!((ran.dropped, ran.cancelled), (vec!["swift".to_owned()], vec!["swift".to_owned()]));
}

#[test]
fn the_topology_shows_the_start_and_the_quorum() {
    use carrier_quotes::Node;
    let graph = CarrierQuotes::new(Fakes::new());
    let topology: TopologyOf<CarrierQuotes<Fakes>> = graph.topology();
    let carriers = [Node::North, Node::Post, Node::Swift];
    assert_eq!(topology.start, carriers);
    assert_eq!(topology.nodes.iter().map(|place| place.node).collect::<Vec<_>>(), Node::ALL);
    let joins: Vec<_> = topology.joins().collect();
    let [(pick, join)] = joins.as_slice() else { panic!("{joins:?}") };
    assert_eq!((pick.node, &join.waits_for[..], join.fan, join.closes), (Node::Pick, &carriers[..], None, true));
    assert_eq!((join.need, join.fewer), (Some(2), Some(Node::TooFew)));
    assert_eq!(
        topology.node("north").map(|north| north.edges.iter().map(|edge| edge.to).collect()),
        Some(vec![Some(Node::Pick)])
    );
    assert_eq!(topology.channels["cheapest"], Reducer::Min);
    assert_eq!(Node::Pick.next(), [Node::TooFew]);
}
