//! The service deployed over itself: a release with a changed graph takes over the orders of the release before.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_runtime::answer::{KeyFile, NamedAnswer};
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Tools};
use graph_runtime::machine::AsView;
use graph_runtime::{
    ActionError, Call, FromValue, Machine as _, Map, Mismatch, RunId, SecretKey, Store, Value, Worker,
};
use graph_signing::{ItemKind, sign};
use rusqlite::Connection;
use serde_json::json;
use service::graphs::invoice;
use service::graphs::tools::{
    shop_release::Tool as _, shop_remind::Tool as _, shop_reserve::Tool as _, shop_ship::Tool as _,
    shop_withdraw::Tool as _, shop_write_invoice::Tool as _,
};
use service::shop::Shop;
use service::{Service, http};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::inbox::People;
use crate::process::{Process, number, settings};

/// The shop, for the graph of the release before, whose types are not compiled.
struct Before(Arc<Shop>);

/// Performs a tool with its typed parameters.
async fn typed<P: FromValue, R: AsView, F>(
    params: Map<String, Value>,
    perform: impl FnOnce(P) -> F,
) -> Result<Value, ActionError>
where
    F: Future<Output = Result<R, ActionError>>,
{
    Ok(perform(P::from_value(params.into())?).await?.view().to_plain_value())
}

impl Tools for Before {
    fn perform<'a>(
        &'a self,
        call: &'a Call,
        _: &'a graph_compiler::graph::TypedTool,
        params: Map<String, Value>,
    ) -> ToolFuture<'a> {
        let shop = &*self.0;
        Box::pin(async move {
            match call.tool() {
                "shop/reserve" => typed(params, |params| shop.shop_reserve(call, params)).await,
                "shop/write_invoice" => typed(params, |params| shop.shop_write_invoice(call, params)).await,
                "shop/remind" => typed(params, |params| shop.shop_remind(call, params)).await,
                "shop/withdraw" => typed(params, |params| shop.shop_withdraw(call, params)).await,
                "shop/ship" => typed(params, |params| shop.shop_ship(call, params)).await,
                _ => typed(params, |params| shop.shop_release(call, params)).await,
            }
        })
    }
}

/// Makes the graph of the release before: it waits for other times, and a refused order has no note.
fn before(tree: &Path, shop: &Arc<Shop>) -> Interpreted {
    let key = SecretKey::generate().unwrap();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("graphs");
    let write = |name: &str, text: &str| {
        let path = tree.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let file = KeyFile::new(key.public(), "the release before");
    write(&format!("keys/{}.toml", file.fingerprint), &file.to_signed_toml(&key, SystemTime::now()));
    let signed = |text: &str| {
        let text = text.split_once('\n').unwrap().1;
        sign(ItemKind::YAML, text, &key, SystemTime::now()).unwrap()
    };
    for entry in std::fs::read_dir(own.join("tools/shop")).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("tools/shop/{}", path.file_name().unwrap().display());
        write(&name, &signed(&std::fs::read_to_string(path).unwrap()));
    }
    let mut text = std::fs::read_to_string(own.join("invoice.yaml")).unwrap();
    for (new, old) in [
        ("version: \"1.0.0\"", "version: \"0.9.0\""),
        ("timeout: 2d", "timeout: 1d"),
        ("timeout: 14d", "timeout: 7d"),
        (", note: \"${state.note}\" }", " }"),
    ] {
        assert_eq!(text.matches(new).count(), 1, "{new}");
        text = text.replace(new, old);
    }
    write("invoice.yaml", &signed(&text));
    let library = Library::open(tree, Before(Arc::clone(shop)));
    library.graph(&tree.join("invoice.yaml")).unwrap()
}

/// Converts an output of the release before.
fn converted(mut output: Value) -> Result<invoice::Output, Mismatch> {
    let has = |name: &str| output.get(name).is_some();
    if has("parcel") {
        return FromValue::from_value(output).map(invoice::Output::Shipped);
    }
    if has("decision") {
        output["note"] = "".into();
        return FromValue::from_value(output).map(invoice::Output::Refused);
    }
    match has("reason") {
        true => FromValue::from_value(output).map(invoice::Output::SoldOut),
        false => FromValue::from_value(output).map(invoice::Output::Unpaid),
    }
}

fn id(order: &str) -> RunId {
    RunId::new(order).unwrap()
}

/// Brings an order to where the release before leaves it.
async fn ordered(service: &Service, graph: &Interpreted, people: &People, order: &str) {
    let (runtime, run) = (&service.runtime, id(order));
    let inputs = json!({ "article": "tea", "quantity": 2, "customer": "Mia", "remark": "It is for my mother." });
    let inputs = Map::from_value(inputs).unwrap();
    drop(runtime.start_as(run.clone(), graph.clone(), inputs).await.unwrap().await);
    let stage = order.split('-').next().unwrap();
    if stage == "asks" {
        return;
    }
    let decision = if stage == "refused" { "refuse" } else { "approve" };
    let question = &runtime.questions(graph, &run).await.unwrap()[0];
    let envelope = question.sign(NamedAnswer::new("approve", json!({ "decision": decision })), &people.ann).unwrap();
    runtime.answer(graph, &run, &envelope).await.unwrap();
    drop(runtime.resume(graph.clone(), &run).await.unwrap().await);
    if matches!(stage, "shipped" | "failed") {
        service.shop.pay(&run, &format!("p-{order}"), 900).await.unwrap();
        let paid = invoice::Signal::Paid(invoice::Paid { cents: 900 });
        runtime.signal(graph, &run, paid, format!("p-{order}")).await.unwrap();
        drop(runtime.resume(graph.clone(), &run).await.unwrap().await);
    }
}

/// A release that listens in this process.
struct Release {
    process: Process,
    service: Service,
    worker: Worker,
    server: JoinHandle<()>,
}

impl Release {
    /// Deploys the service, with the graph of the release before beside its own, or without.
    async fn deployed(directory: &Path, before: Option<&Path>) -> Self {
        let mut service = Service::open(&settings(directory, Duration::ZERO)).await.unwrap();
        if let Some(tree) = before {
            let graph = self::before(tree, &service.shop);
            service.invoice = service.invoice.and_with(graph, converted).unwrap();
        }
        let worker = service.work().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let process = Process::here(listener.local_addr().unwrap().to_string());
        let router = http::router(service.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { process, service, worker, server }
    }

    async fn stop(self) {
        self.server.abort();
        self.service.shut_down(self.worker, Duration::from_secs(10)).await;
    }
}

#[test]
fn a_release_takes_over_the_orders_of_the_release_before() {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (directory, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (directory, tree) = (directory.path(), tree.path());
    let people = People::trusted_in(directory);
    let shop = || Connection::open(directory.join("shop.db")).unwrap();
    tokio.block_on(async {
        let service = Service::open(&settings(directory, Duration::ZERO)).await.unwrap();
        let graph = before(tree, &service.shop);
        for order in ["asks", "asks-cancelled", "asks-left", "pays", "pays-left", "shipped", "refused"] {
            ordered(&service, &graph, &people, order).await;
        }
        shop().execute_batch("ALTER TABLE parcels RENAME TO lost").unwrap();
        for order in ["failed", "failed-left"] {
            ordered(&service, &graph, &people, order).await;
        }
        service.runtime.shutdown(Duration::from_secs(10)).await;
    });
    shop().execute_batch("ALTER TABLE lost RENAME TO parcels").unwrap();

    let release = tokio.block_on(Release::deployed(directory, Some(tree)));
    let service = &release.process;
    assert_eq!(service.waits_at("asks", "approve")["role"], "credit");
    assert_eq!(service.waits_at("pays", "payment")["signals"], json!(["paid"]));
    let shipped = service.shown("/invoices/shipped");
    assert!(shipped["result"]["shipped"]["parcel"].as_str().unwrap().starts_with("parcel-"), "{shipped}");
    let refused = json!({ "status": "completed", "result": { "refused": { "decision": "refuse", "note": "" } } });
    assert_eq!(service.shown("/invoices/refused"), refused);
    assert_eq!(service.shown("/invoices/failed"), json!({ "status": "error", "at": "ship" }));
    // The client of an order asks again, since the deploy kept it from its answer.
    assert_eq!(service.invoice("asks"), 202);
    let other = json!({ "article": "tea", "quantity": 3, "customer": "Mia" });
    let (status, text) = service.request("POST", "/invoices/asks", Some(&other));
    assert!(status == 409 && text.contains("with other values of `quantity`, `remark`"), "{text}");
    // People approve, the customer pays.
    service.approve(directory, "asks", &people.ann);
    service.waits_at("asks", "payment");
    for order in ["asks", "pays"] {
        let payment = format!("p-{order}");
        assert_eq!(service.pay(&payment, order, 900), (200, json!({ "result": "accepted" })));
        assert_eq!(service.pay(&payment, order, 900), (200, json!({ "result": "already" })));
        assert!(service.invoice_ended(order)["result"]["shipped"]["invoice"].is_string());
    }
    assert_eq!(service.request("POST", "/invoices/failed/resume", None).0, 202);
    assert_eq!(service.invoice_ended("failed")["status"], "completed");
    assert_eq!(service.request("DELETE", "/invoices/asks-cancelled", None).0, 202);
    assert_eq!(service.invoice_ended("asks-cancelled")["status"], "cancelled");
    // New orders are those of the new release.
    assert_eq!(service.invoice("new"), 202);
    service.waits_at("new", "approve");
    tokio.block_on(async {
        let new = release.service.store.find(&id("new")).await.unwrap();
        assert!(new.is_under(release.service.invoice.graph()));
        assert!(release.service.store.find(&id("asks")).await.unwrap().version.as_deref() == Some("0.9.0"));
        release.stop().await;
    });

    // A release that has dropped the version says so, and changes nothing.
    let release = tokio.block_on(Release::deployed(directory, None));
    let service = &release.process;
    let is_refused = |(status, said): (u16, String)| {
        let is_named = ["is a run of ", "shop/invoice 0.9.0 (", "not of ", "shop/invoice 1.0.0 ("];
        assert!(status == 409 && is_named.iter().all(|part| said.contains(part)), "{status} {said}");
    };
    for order in ["asks-left", "pays-left", "shipped"] {
        is_refused(service.request("GET", &format!("/invoices/{order}"), None));
    }
    is_refused(service.request("POST", "/invoices/failed-left/resume", None));
    let inputs = json!({ "article": "tea", "quantity": 2, "customer": "Mia", "remark": "It is for my mother." });
    is_refused(service.request("POST", "/invoices/asks-left", Some(&inputs)));
    let (status, said) = service.inbox(directory, "GET", "/asks-left/2%231", None);
    is_refused((status, said.to_string()));
    let (status, said) = service.pay("p-left", "pays-left", 900);
    is_refused((status, said.to_string()));
    let noted = "SELECT count(*) FROM invoices WHERE payment = 'p-left'";
    assert_eq!(number(directory, noted), 0, "the money is given back");
    service.waits_at("new", "approve");
    assert_eq!(service.request("DELETE", "/invoices/asks-left", None).0, 202);
    tokio.block_on(async {
        assert_eq!(release.service.store.find(&id("asks-left")).await.unwrap().status.name(), "cancelled");
        release.stop().await;
    });
}
