//! A client of WebDriver that is just large enough to use a page: <https://www.w3.org/TR/webdriver2/>.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The name of an element's id in the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Chromium, with a page. Both end when it is dropped.
pub(crate) struct Browser {
    driver: Child,
    address: String,
    session: String,
}

/// Returns the path of a program that is installed.
fn found(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|directory| directory.join(name)).find(|path| path.is_file())
}

impl Browser {
    /// Starts Chromium without a window, with a new profile in `profile`. Returns `None`, and says so, if it is not installed.
    ///
    /// # Panics
    ///
    /// If it is not installed, and the environment has the variable `REQUIRE_BROWSER`.
    pub(crate) fn start(profile: &Path) -> Option<Self> {
        let Some((driver, _)) = found("chromedriver").zip(found("chromium")) else {
            assert!(std::env::var_os("REQUIRE_BROWSER").is_none(), "chromium and chromedriver are not installed");
            // The harness keeps what a test that succeeds prints with a macro.
            let skipped = "skipped: a page is not tested, since chromium and chromedriver are not installed\n";
            std::io::stderr().write_all(skipped.as_bytes()).unwrap();
            return None;
        };
        let mut driver = Command::new(driver);
        let mut driver = driver.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap());
        let mut seen = String::new();
        let port = loop {
            let start = seen.len();
            assert_ne!(lines.read_line(&mut seen).unwrap(), 0, "chromedriver ended:\n{seen}");
            if let Some((_, port)) = seen[start..].split_once("started successfully on port ") {
                break port.trim().trim_end_matches('.').to_owned();
            }
        };
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let mut browser = Self { driver, address: format!("127.0.0.1:{port}"), session: String::new() };
        let mut args: Vec<_> = [
            "headless",
            "no-sandbox",
            "disable-gpu",
            "disable-quic",
            "no-first-run",
            "disable-background-networking",
            "disable-component-update",
            "disable-sync",
            "disable-dev-shm-usage",
            "window-size=1000,1000",
        ]
        .map(|flag| format!("--{flag}"))
        .into();
        args.push(format!("--user-data-dir={}", profile.display()));
        let capabilities = json!({ "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": args },
            "goog:loggingPrefs": { "browser": "ALL" },
        } });
        let session = browser.send("POST", "/session", &json!({ "capabilities": capabilities }));
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        Some(browser)
    }

    /// Sends a command, and returns the value of the answer.
    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_send(method, path, body).unwrap()
    }

    fn try_send(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (path, length) = (format!("{}{path}", self.session), body.len());
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}");
        write!(stream, "{head}\r\n\r\n{body}").unwrap();
        let mut lines = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), None);
        while lines.read_line(&mut line).unwrap() > 2 {
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Some(value.trim().parse::<usize>().unwrap());
            }
            line.clear();
        }
        let mut answer = vec![0; length.unwrap()];
        lines.read_exact(&mut answer).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let value = answer["value"].clone();
        if value["error"].is_string() { Err(value) } else { Ok(value) }
    }

    pub(crate) fn open(&self, url: &str) {
        self.send("POST", "/url", &json!({ "url": url }));
    }

    /// Returns an element by a CSS selector, once it can be seen.
    fn element(&self, selector: &str) -> String {
        let began = Instant::now();
        loop {
            let query = json!({ "using": "css selector", "value": selector });
            if let Ok(found) = self.try_send("POST", "/element", &query) {
                let element = found[ELEMENT].as_str().unwrap().to_owned();
                if self.try_send("GET", &format!("/element/{element}/displayed"), &Value::Null) == Ok(Value::Bool(true))
                {
                    return element;
                }
            }
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "no {selector}: {}",
                self.run("return document.body.innerText")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn click(&self, selector: &str) {
        self.with(selector, "POST", "click", &json!({}));
    }

    /// Sends a command about an element. The page may replace the element between two commands.
    fn with(&self, selector: &str, method: &str, command: &str, body: &Value) -> Value {
        loop {
            let element = self.element(selector);
            match self.try_send(method, &format!("/element/{element}/{command}"), body) {
                Err(error) if error["error"] == "stale element reference" => {}
                answer => return answer.unwrap(),
            }
        }
    }

    /// Writes into a field, as a person types. Into one for files, it writes the path of a file.
    pub(crate) fn write(&self, selector: &str, text: &str) {
        self.with(selector, "POST", "value", &json!({ "text": text }));
    }

    /// Returns the text that a person sees.
    pub(crate) fn text(&self, selector: &str) -> String {
        self.with(selector, "GET", "text", &Value::Null).as_str().unwrap().to_owned()
    }

    /// Waits until a person sees a text.
    pub(crate) fn sees(&self, selector: &str, text: &str) {
        let began = Instant::now();
        loop {
            let found = self.text(selector);
            if found.contains(text) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{selector} says: {found}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs a script in the page. The policy of the page does not apply to it.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.send("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Returns what the console of the page has.
    pub(crate) fn log(&self) -> Vec<String> {
        let entries = self.send("POST", "/se/log", &json!({ "type": "browser" }));
        entries.as_array().unwrap().iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// Writes a picture of the page into the directory in the variable `SCREENSHOTS` of the environment, if there is one.
    pub(crate) fn picture(&self, name: &str) {
        use base64ct::{Base64, Encoding};
        let Some(directory) = std::env::var_os("SCREENSHOTS") else { return };
        let picture = self.send("GET", "/screenshot", &Value::Null);
        let bytes = Base64::decode_vec(picture.as_str().unwrap()).unwrap();
        std::fs::write(Path::new(&directory).join(format!("{name}.png")), bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser with the session.
        drop(self.try_send("DELETE", "", &Value::Null));
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}
