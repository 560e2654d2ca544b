//! The graphs of `tests/engines/graphs`, compiled, with tools that answer as their scripts say.
//!
//! Written by `SIGN_FIXTURES=1 cargo test --test engine_graphs`.

use graph_model::value::AsView;
use graph_runtime::graph;

use super::script::Stage;
use super::{Compiled, compiled};

graph!("tests/engines/graphs/greeting_child.yaml");
graph!("tests/engines/graphs/greeting_parent.yaml");
graph!("tests/engines/graphs/import_goes_on_after_failures.yaml");
graph!("tests/engines/graphs/map_reduce_words.yaml");
graph!("tests/engines/graphs/order_is_paid_or_refused.yaml");
graph!("tests/engines/graphs/poll_until_done.yaml");

super::all_machines! {
    "greeting_child" greeting_child GreetingChild {
        text_say(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "greeting_parent" greeting_parent GreetingParent {
    }
    "import_goes_on_after_failures" import_goes_on_after_failures ImportGoesOnAfterFailures {
        import_row(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        import_report(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "map_reduce_words" map_reduce_words MapReduceWords {
        words_count(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        words_sum(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "order_is_paid_or_refused" order_is_paid_or_refused OrderIsPaidOrRefused {
        shop_look_up(order_is_paid_or_refused::ShopLookUp { article: "article" }) -> order_is_paid_or_refused::ShopLookUpResult;
        shop_charge(order_is_paid_or_refused::ShopCharge { card: "card", amount: "amount", currency: "currency", note: "note" }) -> order_is_paid_or_refused::ShopChargeResult;
    }
    "poll_until_done" poll_until_done PollUntilDone {
        jobs_status(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        jobs_wait(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
}
