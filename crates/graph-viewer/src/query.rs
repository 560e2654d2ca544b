//! The query of an address.

use crate::problem::ViewProblem;

/// The query of an address, decoded.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    ///
    /// If it is not percent-encoded UTF-8.
    pub(crate) fn read(text: &str) -> Result<Self, ViewProblem> {
        let decoded = |text: &str| {
            decode(text).ok_or_else(|| ViewProblem::bad("the query of the address is not percent-encoded UTF-8"))
        };
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok::<_, ViewProblem>((decoded(name)?, decoded(value)?))
        });
        Ok(Self(pairs.collect::<Result<_, _>>()?))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, ViewProblem> {
        let number =
            |text: &str| text.parse().map_err(|_| ViewProblem::bad(format!("`{name}` of the query is no number")));
        self.get(name).map(number).transpose()
    }
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let pair = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&pair).ok().filter(|_| pair.iter().all(u8::is_ascii_hexdigit))?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
            }
            b'+' => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}
