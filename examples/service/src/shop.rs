//! The tools of the graph `fulfil`, of which `invoice` calls some too. They store their effects in a database of their own,
//! under the idempotency key of the call. So a call that is made again after a crash has no second effect. Each effect names its run
//! too, so that the service can undo those of an order that was cancelled.

use std::path::Path;
use std::time::Duration;

use deadpool::unmanaged::Pool;
use graph_runtime::{ActionError, Call, RunId};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use crate::Error;
use crate::graphs::tools::{shop_charge, shop_release, shop_reserve, shop_ship};

/// How many calls use the database at a time.
const CONNECTIONS: usize = 4;

const TABLES: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS stock (article TEXT PRIMARY KEY, quantity INTEGER NOT NULL, price_cents INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS reservations (key TEXT PRIMARY KEY, run TEXT NOT NULL, article TEXT NOT NULL, quantity INTEGER NOT NULL, amount_cents INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS charges (key TEXT PRIMARY KEY, run TEXT NOT NULL, amount_cents INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS parcels (key TEXT PRIMARY KEY, run TEXT NOT NULL, reservation TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS invoices (key TEXT PRIMARY KEY, run TEXT NOT NULL UNIQUE, amount_cents INTEGER NOT NULL, payment TEXT UNIQUE, is_withdrawn INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS letters (key TEXT PRIMARY KEY, run TEXT NOT NULL, kind TEXT NOT NULL, customer TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS refunds (payment TEXT PRIMARY KEY, run TEXT NOT NULL, amount_cents INTEGER NOT NULL);
    INSERT OR IGNORE INTO stock VALUES ('tea', 1000, 450), ('teapot', 3, 2900);
";

/// A shop: its stock, its payment service and its carrier.
pub struct Shop {
    pool: Pool<Connection>,
    latency: Duration,
}

impl Shop {
    /// Opens the shop's database, and makes it if it is missing.
    pub fn open(path: &Path, latency: Duration) -> Result<Self, Error> {
        let open = || {
            let connection = Connection::open(path)?;
            connection.busy_timeout(Duration::from_secs(5))?;
            connection.execute_batch(TABLES)?;
            Ok(connection)
        };
        let connections = (0..CONNECTIONS).map(|_| open()).collect::<Result<Vec<_>, rusqlite::Error>>()?;
        Ok(Self { pool: Pool::from(connections), latency })
    }

    /// Does some work in a transaction, on a thread that may wait for the disk.
    pub(crate) async fn transaction<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, ActionError> {
        let mut connection = self.pool.get().await?;
        let work = move || {
            // A transaction that reads first and writes then would fail if another one wrote meanwhile. This one waits at its start.
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        tokio::task::spawn_blocking(work).await?.map_err(|error: rusqlite::Error| {
            // The text of an action's error may reach a customer.
            tracing::error!("the shop's database failed: {error}");
            ActionError::transient("the shop's database failed")
        })
    }

    /// Undoes the effects of an order that was cancelled before it was shipped: the reservation, the charge, and the invoice with its
    /// payment. To undo them again does nothing.
    pub async fn undo(&self, run: &RunId) -> Result<(), ActionError> {
        let run = run.as_str().to_owned();
        self.transaction(move |shop| {
            let parcel = "SELECT 1 FROM parcels WHERE run = ?1";
            if shop.query_row(parcel, [&run], |_| Ok(())).optional()?.is_some() {
                return Ok(());
            }
            let back = "UPDATE stock SET quantity = stock.quantity + reservations.quantity FROM reservations
                        WHERE reservations.run = ?1 AND stock.article = reservations.article";
            shop.execute(back, [&run])?;
            shop.execute("DELETE FROM reservations WHERE run = ?1", [&run])?;
            shop.execute("DELETE FROM charges WHERE run = ?1", [&run])?;
            // A payment that comes from now on is refused, and one that came before is given back.
            shop.execute("UPDATE invoices SET is_withdrawn = 1 WHERE run = ?1", [&run])?;
            let refund = "INSERT OR IGNORE INTO refunds
                          SELECT payment, run, amount_cents FROM invoices WHERE run = ?1 AND payment IS NOT NULL";
            shop.execute(refund, [&run])?;
            Ok(())
        })
        .await
    }
}

/// Puts what was reserved back into the stock, within a transaction. Returns how many these are.
pub(crate) fn release(shop: &Connection, reservation: &str) -> rusqlite::Result<i64> {
    let taken = "DELETE FROM reservations WHERE key = ?1 RETURNING article, quantity";
    let taken = shop.query_row(taken, [reservation], |row| Ok((row.get(0)?, row.get(1)?)));
    // A call before this one may have released it already.
    let (article, quantity): (String, i64) = taken.optional()?.unwrap_or_default();
    shop.execute("UPDATE stock SET quantity = quantity + ?2 WHERE article = ?1", params![article, quantity])?;
    Ok(quantity)
}

impl shop_reserve::Tool for Shop {
    async fn shop_reserve(
        &self,
        call: &Call,
        params: shop_reserve::Params,
    ) -> Result<shop_reserve::Output, ActionError> {
        let (key, run) = (call.idempotency_key(), call.run_id().as_str().to_owned());
        self.transaction(move |shop| {
            let shop_reserve::Params { article, quantity } = params;
            let before = "SELECT amount_cents FROM reservations WHERE key = ?1";
            if let Some(amount_cents) = shop.query_row(before, [&key], |row| row.get(0)).optional()? {
                return Ok(shop_reserve::Output { is_reserved: true, reservation: key, amount_cents });
            }
            let take =
                "UPDATE stock SET quantity = quantity - ?2 WHERE article = ?1 AND quantity >= ?2 RETURNING price_cents";
            let price: Option<i64> = shop.query_row(take, params![article, quantity], |row| row.get(0)).optional()?;
            let Some(price) = price else {
                return Ok(shop_reserve::Output { is_reserved: false, reservation: String::new(), amount_cents: 0 });
            };
            let amount_cents = price * quantity;
            let reserve = "INSERT INTO reservations VALUES (?1, ?2, ?3, ?4, ?5)";
            shop.execute(reserve, params![key, run, article, quantity, amount_cents])?;
            Ok(shop_reserve::Output { is_reserved: true, reservation: key, amount_cents })
        })
        .await
    }
}

impl shop_charge::Tool for Shop {
    async fn shop_charge(&self, call: &Call, params: shop_charge::Params) -> Result<shop_charge::Output, ActionError> {
        // The payment service takes its time. A run that is cancelled meanwhile does not wait for it.
        tokio::select! {
            () = tokio::time::sleep(self.latency) => {}
            () = call.cancelled() => return Err(ActionError::permanent("the order was cancelled")),
        }
        if params.card.expose() == "tok_declined" {
            return Err(ActionError::permanent("the card was declined").with_code("declined"));
        }
        let (key, run) = (call.idempotency_key(), call.run_id().as_str().to_owned());
        self.transaction(move |shop| {
            let charge = "INSERT OR IGNORE INTO charges VALUES (?1, ?2, ?3)";
            shop.execute(charge, params![key, run, params.amount_cents])?;
            Ok(shop_charge::Output { receipt: format!("receipt-{key:.8}") })
        })
        .await
    }
}

impl shop_ship::Tool for Shop {
    async fn shop_ship(&self, call: &Call, params: shop_ship::Params) -> Result<shop_ship::Output, ActionError> {
        let (key, run) = (call.idempotency_key(), call.run_id().as_str().to_owned());
        self.transaction(move |shop| {
            let parcel = "INSERT OR IGNORE INTO parcels VALUES (?1, ?2, ?3)";
            shop.execute(parcel, params![key, run, params.reservation])?;
            Ok(shop_ship::Output { parcel: format!("parcel-{key:.8}") })
        })
        .await
    }
}

impl shop_release::Tool for Shop {
    async fn shop_release(&self, _: &Call, params: shop_release::Params) -> Result<shop_release::Output, ActionError> {
        let quantity = self.transaction(move |shop| release(shop, &params.reservation)).await?;
        Ok(shop_release::Output { quantity })
    }
}
