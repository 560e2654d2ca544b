use graph_runtime::{ActionError, Call, Runtime};

graph_runtime::include_graphs!();

/// The tools that the graphs call.
struct Desk;

impl greet::Actions for Desk {
    async fn desk_greet(&self, _: &Call, params: greet::DeskGreet) -> Result<greet::DeskGreetResult, ActionError> {
        Ok(greet::DeskGreetResult { text: format!("Hello, {}!", params.name) })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().grant("rye.execute.tool.desk.greet")?.build()?;
    let run = runtime.start(Greet::new(Desk), greet::Inputs { name: "Ann".into() }).await?;
    println!("{}", run.await?.output.text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_person_is_greeted_by_name() {
        let runtime = Runtime::builder().grant("rye.execute.tool.desk.greet").unwrap().build().unwrap();
        let run = runtime.start(Greet::new(Desk), greet::Inputs { name: "Bo".into() }).await.unwrap();
        assert_eq!(run.await.unwrap().output.text, "Hello, Bo!");
    }
}
