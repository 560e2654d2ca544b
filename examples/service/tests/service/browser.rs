//! The page of the inbox in Chromium.

use std::path::Path;

use serde_json::{Value, json};

use crate::inbox::{People, token};
use crate::process::{DAY, Later, Process};
use crate::webdriver::Browser;

/// A text that is a part of the page if a mistake lets it.
const HOSTILE: &str =
    "</td><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u{202e}sdrawkcab";

/// Opens the page, and gives it the token and a key.
fn enter(browser: &Browser, service: &Process, directory: &Path, pem: &str) {
    browser.open(&format!("http://{}/inbox", service.address));
    browser.write("#token", "a wrong token");
    browser.click("#enter-form button");
    browser.sees("#message", "not the token");
    browser.write("#token", &token(directory));
    browser.click("#enter-form button");
    browser.write("#pem", "not a key");
    browser.click("#load-form button");
    browser.sees("#message", "not a secret key");
    let file = directory.join("ann.pem");
    std::fs::write(&file, pem).unwrap();
    browser.write("#file", file.to_str().unwrap());
    browser.picture("key");
    browser.click("#load-form button");
    browser.text("#refresh");
}

/// Opens the question of an order.
fn open(browser: &Browser, order: &str) {
    browser.click("#refresh");
    browser.click(&format!("button[data-run='{order}']"));
    browser.sees("#title", order);
}

#[test]
fn people_approve_and_refuse_in_a_browser() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(profile.path()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let people = People::trusted_in(directory);
    let service = Process::later(directory, Later::default());
    let address = service.address.clone();
    for order in ["approved", "refused", "expired", "unsigned"] {
        service.invoice(order);
    }
    let inputs = json!({ "article": "tea", "quantity": 1, "customer": HOSTILE, "remark": HOSTILE });
    assert_eq!(service.request("POST", "/invoices/hostile", Some(&inputs)).0, 202);
    for order in ["approved", "refused", "expired", "unsigned", "hostile"] {
        service.waits_at(order, "approve");
    }
    enter(&browser, &service, directory, &people.ann.to_pem());
    let fingerprint = people.ann.public().fingerprint();
    browser.sees("#who", fingerprint.as_str());
    browser.picture("list");

    open(&browser, "approved");
    browser.sees("#payload", "It is for my mother.");
    browser.sees("#payload", "900 (9.00)");
    browser.sees("#due", "left");
    browser.write("#note", "she always pays");
    browser.picture("question");
    browser.click("#approve");
    browser.sees("#message", "You have approved the order approved.");
    browser.click("#signed summary");
    browser.sees("#statement", "\"note\":\"she always pays\"");
    browser.picture("approved");
    service.waits_at("approved", "payment");
    browser.click("#back");

    open(&browser, "refused");
    browser.click("#refuse");
    browser.sees("#message", "You have refused the order refused.");
    let refused = service.invoice_ended("refused");
    assert_eq!(refused["result"], json!({ "refused": { "decision": "refuse", "note": "" } }));
    browser.click("#back");

    // Nothing of the customer's text is a part of the page, and a letter that turns others round is shown as its number.
    open(&browser, "hostile");
    browser.sees("#payload", "<script>document.title='owned'</script>");
    browser.sees("#payload", "U+202E");
    browser.picture("hostile");
    let injected =
        "return document.querySelectorAll('#payload script, #payload img, #questions script, #questions img').length";
    assert_eq!((browser.run(injected), browser.run("return document.title")), (json!(0), json!("Approvals")));
    browser.click("#approve");
    browser.sees("#message", "You have approved the order hostile.");
    service.waits_at("hostile", "payment");
    browser.click("#back");

    // A service that lets a person sign something else than the page shows gets no signature.
    open(&browser, "unsigned");
    for (field, value) in [
        ("run", json!("hostile")),
        ("wait", json!("3#1")),
        ("node", json!("payment")),
        ("payload", json!("0".repeat(64))),
        ("answer", json!({ "decision": "approve" })),
        ("answer", json!({ "decision": "refuse", "more": 1 })),
        ("v", json!(2)),
    ] {
        browser.run(&lying(field, &value));
        browser.click("#refuse");
        browser.sees("#message", "Nothing was signed");
        assert_eq!(browser.run("return window.sent"), json!(1), "only the statement was asked for");
        browser.run("window.fetch = window.honest");
    }
    // The page keeps the key, and nobody reads it back, also after it was loaded again.
    browser.open(&format!("http://{address}/inbox"));
    browser.sees("#who", fingerprint.as_str());
    let exported = "const [done] = [arguments[arguments.length - 1]];
        const opening = indexedDB.open('inbox', 1);
        return new Promise(resolve => opening.onsuccess = () => {
            const keys = opening.result.transaction('keys').objectStore('keys').get('own');
            keys.onsuccess = () => crypto.subtle.exportKey('pkcs8', keys.result.secret).then(
                () => resolve('exported'), error => resolve(error.name));
        });";
    assert_eq!(browser.run(exported), json!("InvalidAccessError"));

    // The time of the question is over while a person looks at it.
    open(&browser, "expired");
    service.kill();
    browser.click("#approve");
    browser.sees("#message", "The service does not answer. Nothing is lost");
    let service = Process::later(directory, Later { by: 3 * DAY, address: &address, ..Later::default() });
    service.invoice_ended("expired");
    browser.click("#approve");
    browser.sees("#message", "Too late: nobody answered in time");
    browser.sees("#due", "The time is over");
    browser.picture("expired");
    assert_eq!(browser.run("return document.getElementById('approve').disabled"), json!(true));
    assert_eq!(service.invoice_ended("expired")["result"]["refused"]["decision"], "nobody decided in time");
    browser.click("#back");
    browser.sees("#none", "Nothing is to be decided.");

    // The policy of the page had nothing to refuse but what the test did.
    let refused: Vec<_> = browser.log().into_iter().filter(|line| line.contains("Content Security Policy")).collect();
    assert_eq!(refused, Vec::<String>::new());
}

/// A script that changes a field of the statements that the service makes, and counts the requests.
fn lying(field: &str, value: &Value) -> String {
    format!(
        "window.sent = 0; window.honest = window.honest || window.fetch;
         window.fetch = async (...request) => {{
             window.sent += 1;
             const response = await window.honest(...request);
             const envelope = await response.json();
             const said = JSON.parse(atob(envelope.payload));
             said[{field}] = {value};
             return new Response(JSON.stringify({{ ...envelope, payload: btoa(JSON.stringify(said)) }}));
         }};",
        field = json!(field),
    )
}

/// A person may make a key in the browser, which another person then gives a role.
#[test]
fn a_key_made_in_a_browser_answers_once_it_has_the_role() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(profile.path()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let people = People::trusted_in(directory);
    let service = Process::later(directory, Later::default());
    service.invoice("a-1");
    service.waits_at("a-1", "approve");
    browser.open(&format!("http://{}/inbox", service.address));
    browser.write("#token", &token(directory));
    browser.click("#enter-form button");
    browser.click("#make");
    let shown = browser.text("#public-pem");
    browser.picture("made");
    let pem = shown.split_once("fingerprint").unwrap().0.trim_end().to_owned() + "\n";
    let public = graph_runtime::PublicKey::from_pem(&pem).unwrap();
    assert!(shown.ends_with(public.fingerprint().as_str()), "{shown}");
    browser.click("#key-done");

    open(&browser, "a-1");
    browser.click("#approve");
    browser.sees("#message", "it is not trusted");
    people.trust_public(directory, public, "Cy", &["credit"]);
    browser.click("#approve");
    browser.sees("#message", "You have approved the order a-1.");
    service.waits_at("a-1", "payment");
    browser.click("#back");
    browser.click("#who");
    browser.click("#forget");
    browser.text("#make");
    browser.sees("#who", "No key");
}
