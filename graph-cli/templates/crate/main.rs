use graph_runtime::{ActionError, Call, MainError, Runtime};

graph_runtime::include_graphs!();
use tools::desk_greet;

/// The tools that the graphs call.
struct Desk;

impl desk_greet::Tool for Desk {
    async fn desk_greet(&self, _: &Call, params: desk_greet::Params) -> Result<desk_greet::Output, ActionError> {
        Ok(desk_greet::Output { text: format!("Hello, {}!", params.name) })
    }
}

#[tokio::main]
async fn main() -> Result<(), MainError> {
    // Grants what the graph needs. A list of your own is a second limit, which an edit of the graph does not widen.
    let runtime = Runtime::builder().grants(greet::CAPABILITIES)?.build()?;
    let run = runtime.start(Greet::new(Desk), greet::Inputs { name: "Ann".into() }).await?;
    println!("{}", run.await?.output.text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use graph_runtime::testing::{FakeScript, Fakes, TestBed, graph_test};

    use super::greet::Node;
    use super::*;

    #[graph_test]
    async fn a_person_is_greeted_by_name(bed: TestBed) {
        let greeting = desk_greet::Output { text: "Hello, Bo!".into() };
        let desk = Fakes::new().on(desk_greet::FAKE, FakeScript::returns(greeting));
        let run = bed.run(Greet::new(desk.clone()), greet::Inputs { name: "Bo".into() }).await;
        run.assert_path([Node::Greet, Node::Done]).assert_calls(&desk, ["desk/greet"]);
        assert_eq!(run.output().text, "Hello, Bo!");
        assert_eq!(desk.calls_of(desk_greet::FAKE)[0].name, "Bo");
    }
}
