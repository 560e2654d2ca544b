//! The tools of the graph `invoice`, and the payments of invoices.

use graph_runtime::{ActionError, Call, RunId};
use rusqlite::{OptionalExtension, params};

use crate::graphs::invoice;
use crate::shop::{Reservation, Shop, release};

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

impl invoice::Actions for Shop {
    async fn shop_reserve(
        &self,
        call: &Call,
        params: invoice::ShopReserve,
    ) -> Result<invoice::ShopReserveResult, ActionError> {
        let reserved = self.reserve(call, params.article, params.quantity).await?;
        let is_reserved = reserved.is_some();
        let Reservation { key, amount_cents } = reserved.unwrap_or_default();
        Ok(invoice::ShopReserveResult { is_reserved, reservation: key, amount_cents })
    }

    async fn shop_write_invoice(
        &self,
        call: &Call,
        params: invoice::ShopWriteInvoice,
    ) -> Result<invoice::ShopWriteInvoiceResult, ActionError> {
        let (key, run) = (call.idempotency_key(), call.run_id().as_str().to_owned());
        self.transaction(move |shop| {
            let invoice::ShopWriteInvoice { customer, amount_cents } = params;
            let write = "INSERT OR IGNORE INTO invoices (key, run, amount_cents) VALUES (?1, ?2, ?3)";
            shop.execute(write, params![key, run, amount_cents])?;
            let letter = "INSERT OR IGNORE INTO letters VALUES (?1, ?2, 'invoice', ?3)";
            shop.execute(letter, params![key, run, customer])?;
            Ok(invoice::ShopWriteInvoiceResult { invoice: key })
        })
        .await
    }

    async fn shop_remind(
        &self,
        call: &Call,
        params: invoice::ShopRemind,
    ) -> Result<invoice::ShopRemindResult, ActionError> {
        let (key, run) = (call.idempotency_key(), call.run_id().as_str().to_owned());
        self.transaction(move |shop| {
            let letter =
                "INSERT OR IGNORE INTO letters SELECT ?1, run, 'reminder', customer FROM letters WHERE key = ?2";
            shop.execute(letter, [key, params.invoice])?;
            let sent = "SELECT count(*) FROM letters WHERE run = ?1 AND kind = 'reminder'";
            Ok(invoice::ShopRemindResult { reminders: shop.query_row(sent, [run], |row| row.get(0))? })
        })
        .await
    }

    async fn shop_withdraw(
        &self,
        _: &Call,
        params: invoice::ShopWithdraw,
    ) -> Result<invoice::ShopWithdrawResult, ActionError> {
        self.transaction(move |shop| {
            let invoice::ShopWithdraw { invoice, reservation } = params;
            let withdraw = "UPDATE invoices SET is_withdrawn = 1 WHERE key = ?1 AND payment IS NULL";
            let is_paid = shop.execute(withdraw, [invoice])? == 0;
            if !is_paid {
                release(shop, &reservation)?;
            }
            Ok(invoice::ShopWithdrawResult { is_paid })
        })
        .await
    }

    async fn shop_ship(&self, call: &Call, params: invoice::ShopShip) -> Result<invoice::ShopShipResult, ActionError> {
        Ok(invoice::ShopShipResult { parcel: self.ship(call, params.reservation).await? })
    }

    async fn shop_release(
        &self,
        _: &Call,
        params: invoice::ShopRelease,
    ) -> Result<invoice::ShopReleaseResult, ActionError> {
        Ok(invoice::ShopReleaseResult { quantity: self.release(params.reservation).await? })
    }
}
