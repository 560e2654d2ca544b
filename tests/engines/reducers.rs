//! The reducers of the graphs, for both engines.

use graph_model::value::{AsView, FromValue};
use graph_runtime::{ReducerError, Value};

use crate::machines::channels_combined_by_the_program::tools::{scoring_combine, scoring_title};
use crate::machines::{keys_shared_inside, keys_shared_with_graphs};
use crate::script::Stage;

impl scoring_title::Reducer for Stage {
    fn scoring_title(value: Option<String>, write: String) -> Result<String, ReducerError> {
        let title = value.map_or_else(|| write.clone(), |value| format!("{value} > {write}"));
        if title.len() > 20 { Err("it is too long".into()) } else { Ok(title) }
    }
}

/// Implements the reducer `scoring/combine` of a graph.
macro_rules! scoring_combine {
    ($contract:path) => {
        const _: () = {
            use $contract as contract;

            impl contract::Reducer for Stage {
                fn scoring_combine(
                    value: Option<contract::Value>,
                    write: contract::Write,
                ) -> Result<contract::Value, ReducerError> {
                    let contract::Value { digits, count, mut notes } =
                        value.unwrap_or(contract::Value { digits: 0, count: 0, notes: Vec::new() });
                    if !(0..=9).contains(&write.points) {
                        return Err(ReducerError::new(format!("{} is no digit", write.points)));
                    }
                    notes.extend(write.note);
                    let digits = (digits * 10 + write.points) % 100_000;
                    Ok(contract::Value { digits, count: count + 1, notes })
                }
            }
        };
    };
}

scoring_combine!(scoring_combine);
scoring_combine!(keys_shared_with_graphs::tools::scoring_combine);
scoring_combine!(keys_shared_inside::tools::scoring_combine);

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
        "scoring/title" => Some(call(<Stage as scoring_title::Reducer>::scoring_title, value, write)),
        "scoring/combine" => Some(call(<Stage as scoring_combine::Reducer>::scoring_combine, value, write)),
        _ => None,
    }
}
