//! Calls and results of a program keep the rules of contracts: random schemas and values, and a judge that shares no code with the
//! project. `RULES` is the number of schemas, 12 if it is not set; `SEED` makes others.

use graph_runtime::testing::TestBed;
use graph_runtime::{Map, RunId, Value};
use serde_json::json;

use crate::judge::{Random, fits, likely_given, object};
use crate::tree::{BATCH, Tree};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test]
async fn calls_and_results_keep_the_rules() {
    let mut random = Random::new(number("SEED").unwrap_or(1));
    let (mut made, mut refused, mut ended) = (0, 0, [0, 0]);
    for _ in 0..number("RULES").unwrap_or(12) {
        let (params, result) = (object(&mut random, 2), object(&mut random, 1));
        let calls: Vec<Value> = (0..4).map(|_| likely_given(&mut random, &params)).collect();
        let returned = likely_given(&mut random, &result);
        let asks = calls.iter().zip(1..).map(|(params, id)| {
            let request = json!({ "jsonrpc": "2.0", "id": id, "method": "shop/process", "params": params });
            format!("ask '{request}'\n")
        });
        let tree = Tree::new(&format!("{}echo '{returned}'\n", asks.collect::<String>()));
        let process = json!({ "version": "1.0.0", "tool_type": "rust", "config_schema": params });
        tree.write("tools/shop/process.yaml", &format!("{process}\n"));
        let (head, _) = BATCH.split_once("result_schema:").unwrap();
        tree.write("tools/shop/batch.yaml", &format!("{head}result_schema: {result}\n"));
        let bed = TestBed::new();
        let runtime = tree.runtime(&bed, bed.disk().clone());
        let inputs = Map::from_iter([("items".to_owned(), json!([]))]);
        let run = runtime.start_as(RunId::new("run").unwrap(), tree.program_graph(), inputs).await.unwrap();
        let outcome = run.await.map(|finished| finished.output);
        let fitting = calls.iter().filter(|call| fits(&params, call)).count();
        assert_eq!(tree.made.lock().unwrap().len(), fitting, "{outcome:?}: {} of {params}", Value::from(calls.clone()));
        assert_eq!(outcome.is_ok(), fits(&result, &returned), "{outcome:?}: {returned} of {result}");
        made += fitting;
        refused += calls.len() - fitting;
        ended[usize::from(outcome.is_ok())] += 1;
    }
    assert!(made > 4 && refused > 4 && ended.iter().all(|count| *count > 1), "{made} {refused} {ended:?}");
}
