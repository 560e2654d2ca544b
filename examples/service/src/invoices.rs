//! The other tools of the graph `invoice`, and the payments of invoices.

use graph_runtime::{ActionError, Call, RunId};
use rusqlite::{OptionalExtension, params};

use crate::graphs::tools::{shop_remind, shop_withdraw, shop_write_invoice};
use crate::shop::{Shop, release};

/// The answer of the shop to a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentOutcome {
    /// It pays the invoice, also if the shop knew of it before.
    Accepted,
    /// There is no invoice for the order.
    NoInvoice,
    /// The invoice was withdrawn. The payment service gives the money back.
    Withdrawn,
    /// Another payment has paid the invoice.
    PaidBefore,
    /// The payment has paid another invoice.
    UsedBefore,
    /// The invoice is about another amount.
    Amount {
        /// That amount, in cents.
        cents: i64,
    },
}

impl Shop {
    /// Notes that an invoice is paid. The shop decides here, in one transaction, whether a payment or a withdrawal comes first, so a
    /// payment at the last moment is neither lost nor taken for an order that is not shipped.
    ///
    /// # Errors
    ///
    /// If the shop's database fails. Nothing is changed then.
    pub async fn pay(&self, order: &RunId, payment: &str, cents: i64) -> Result<PaymentOutcome, ActionError> {
        let (order, payment) = (order.as_str().to_owned(), payment.to_owned());
        self.transaction(move |shop| {
            let invoice = "SELECT amount_cents, payment, is_withdrawn FROM invoices WHERE run = ?1";
            let invoice = shop.query_row(invoice, [&order], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
            let invoice: Option<(i64, Option<String>, bool)> = invoice.optional()?;
            let Some((amount, before, is_withdrawn)) = invoice else { return Ok(PaymentOutcome::NoInvoice) };
            if amount != cents {
                return Ok(PaymentOutcome::Amount { cents: amount });
            }
            if is_withdrawn {
                return Ok(PaymentOutcome::Withdrawn);
            }
            match before {
                Some(before) if before == payment => return Ok(PaymentOutcome::Accepted),
                Some(_) => return Ok(PaymentOutcome::PaidBefore),
                None => {}
            }
            let other = shop.query_row("SELECT 1 FROM invoices WHERE payment = ?1", [&payment], |_| Ok(()));
            if other.optional()?.is_some() {
                return Ok(PaymentOutcome::UsedBefore);
            }
            shop.execute("UPDATE invoices SET payment = ?2 WHERE run = ?1", [order, payment])?;
            Ok(PaymentOutcome::Accepted)
        })
        .await
    }
}

impl shop_write_invoice::Tool for Shop {
    async fn shop_write_invoice(
        &self,
        call: &Call,
        params: shop_write_invoice::Params,
    ) -> Result<shop_write_invoice::Output, ActionError> {
        let (key, run) = (call.idempotency_key(), call.run_id().as_str().to_owned());
        self.transaction(move |shop| {
            let shop_write_invoice::Params { customer, amount_cents } = params;
            let write = "INSERT OR IGNORE INTO invoices (key, run, amount_cents) VALUES (?1, ?2, ?3)";
            shop.execute(write, params![key, run, amount_cents])?;
            let letter = "INSERT OR IGNORE INTO letters VALUES (?1, ?2, 'invoice', ?3)";
            shop.execute(letter, params![key, run, customer])?;
            Ok(shop_write_invoice::Output { invoice: key })
        })
        .await
    }
}

impl shop_remind::Tool for Shop {
    async fn shop_remind(&self, call: &Call, params: shop_remind::Params) -> Result<shop_remind::Output, ActionError> {
        let (key, run) = (call.idempotency_key(), call.run_id().as_str().to_owned());
        self.transaction(move |shop| {
            let letter =
                "INSERT OR IGNORE INTO letters SELECT ?1, run, 'reminder', customer FROM letters WHERE key = ?2";
            shop.execute(letter, [key, params.invoice])?;
            let sent = "SELECT count(*) FROM letters WHERE run = ?1 AND kind = 'reminder'";
            Ok(shop_remind::Output { reminders: shop.query_row(sent, [run], |row| row.get(0))? })
        })
        .await
    }
}

impl shop_withdraw::Tool for Shop {
    async fn shop_withdraw(
        &self,
        _: &Call,
        params: shop_withdraw::Params,
    ) -> Result<shop_withdraw::Output, ActionError> {
        self.transaction(move |shop| {
            let shop_withdraw::Params { invoice, reservation } = params;
            let withdraw = "UPDATE invoices SET is_withdrawn = 1 WHERE key = ?1 AND payment IS NULL";
            let is_paid = shop.execute(withdraw, [invoice])? == 0;
            if !is_paid {
                release(shop, &reservation)?;
            }
            Ok(shop_withdraw::Output { is_paid })
        })
        .await
    }
}
