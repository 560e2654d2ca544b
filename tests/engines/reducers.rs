//! The reducers of the graphs, for both engines.

use graph_model::value::{AsView, FromValue};
use graph_runtime::{ReducerError, Value};

use crate::machines::channels_combined_by_the_program::{self, Reducers, ScoringCombine};
use crate::machines::{keys_shared_inside, keys_shared_with_graphs};
use crate::script::Stage;

/// The reducer `scoring/combine`, with the types of a graph.
macro_rules! scoring_combine {
    ($graph:ident) => {
        fn scoring_combine(
            value: Option<$graph::ScoringCombine>,
            write: $graph::ScoringCombineWrite,
        ) -> Result<$graph::ScoringCombine, ReducerError> {
            let $graph::ScoringCombine { digits, count, mut notes } =
                value.unwrap_or($graph::ScoringCombine { digits: 0, count: 0, notes: Vec::new() });
            if !(0..=9).contains(&write.points) {
                return Err(ReducerError::new(format!("{} is no digit", write.points)));
            }
            notes.extend(write.note);
            Ok($graph::ScoringCombine { digits: (digits * 10 + write.points) % 100_000, count: count + 1, notes })
        }
    };
}

impl Reducers for Stage {
    fn scoring_title(value: Option<String>, write: String) -> Result<String, ReducerError> {
        let title = value.map_or_else(|| write.clone(), |value| format!("{value} > {write}"));
        if title.len() > 20 { Err("it is too long".into()) } else { Ok(title) }
    }

    scoring_combine!(channels_combined_by_the_program);
}

impl keys_shared_with_graphs::Reducers for Stage {
    scoring_combine!(keys_shared_with_graphs);
}

impl keys_shared_inside::Reducers for Stage {
    scoring_combine!(keys_shared_inside);
}

/// Calls a reducer with values of any type.
fn call<T: FromValue + AsView, W: FromValue>(
    function: fn(Option<T>, W) -> Result<T, ReducerError>,
    value: Option<Value>,
    write: &Value,
) -> Result<Value, ReducerError> {
    let misfit = |error: graph_runtime::Mismatch| ReducerError::new(error.to_string());
    let value = value.map(T::from_value).transpose().map_err(misfit)?;
    let combined = function(value, W::from_value(write.clone()).map_err(misfit)?)?;
    Ok(combined.view().to_plain_value())
}

/// Calls the reducer with an id, if there is one.
pub(crate) fn reduce(id: &str, value: Option<Value>, write: &Value) -> Option<Result<Value, ReducerError>> {
    match id {
        "scoring/title" => Some(call(Stage::scoring_title, value, write)),
        "scoring/combine" => {
            let function: fn(Option<ScoringCombine>, _) -> _ = <Stage as Reducers>::scoring_combine;
            Some(call(function, value, write))
        }
        _ => None,
    }
}
