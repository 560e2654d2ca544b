//! Resuming runs that a crash, an error or a full disk stopped.

use crate::address::Address;
use crate::admission::{allowed, granted};
use crate::call::Parent;
use crate::engine::{Begin, JournalWriter, Taken, WaitTime, open_waits, waits_inside, waits_to_store};
use crate::error::{ResumeError, RunError, StoredRunError};
use crate::graph::{GraphTables, tables};
use crate::inside::{counts_inside, steps_inside, verify_inside, verify_waiting};
use crate::machine::Machine;
use crate::record::{Chain, Journal, JournalError, Resume, SignedRecord, Unasked, VerifiedJournal, unasked};
use crate::replay::{Replayed, add_up, gone, result_of};
use crate::run_secrets::RunSecrets;
use crate::services::RuntimeServices;
use crate::start::EngineParts;
use crate::status::Status;
use crate::step::state_value;
use crate::store::{Inbox, Lease, Store, StoreError, Wait, WaitChanges};
use std::collections::BTreeMap;
use std::sync::Arc;

use graph_model::capability::Grants;
use graph_model::name::RunId;
use graph_model::program;
use graph_signing::PublicKey;

/// Verifies the journal of a run of a graph and reads what is needed of it, with its secrets.
pub(crate) fn read_journal(
    machine: &dyn Machine,
    run: &RunId,
    signed: &[SignedRecord],
    key: &PublicKey,
    run_secrets: Option<&RunSecrets>,
    keeps_history: bool,
) -> Result<Journal, StoredRunError> {
    let (code, misfit) = (tables(machine.graph()), StoredRunError::journal(run));
    let verified = VerifiedJournal::new(run, signed, key).map_err(&misfit)?;
    // Texts that were secret before the last snapshot still are.
    let reads_all = keeps_history || run_secrets.is_some();
    let journal = if reads_all { verified.read() } else { verified.read_recent() };
    let mut journal = journal.map_err(&misfit)?;
    if !journal.start.is_under(machine.graph()) {
        let gone = gone(code, &Journal::verify(run, signed, key).map_err(&misfit)?);
        return Err(StoredRunError::another_graph(run, &journal.start, machine, gone));
    }
    if let Some(run_secrets) = run_secrets {
        let found = journal.start.encryption_key.as_ref();
        StoredRunError::unless_encrypted_with(run_secrets.fingerprint(), run, found)?;
        run_secrets.decrypt_journal(code, &mut journal).map_err(misfit)?;
    }
    Ok(journal)
}

/// The events at which a run that is resumed asks the hooks that its process may not have asked.
const ASKED: [program::Event; 2] = [program::Event::GraphStarted, program::Event::AfterStep];

/// Returns where the run of a journal receives signals and answers.
fn address_of(journal: &Journal) -> Option<Address> {
    match &journal.start.parent {
        Some(_) => journal.start.address.clone(),
        None => Some(Address::of_run(journal.chain.run().clone(), journal.chain.start()?)),
    }
}

/// Leases a run that is resumed, unless it was claimed before.
async fn lease_of(store: &dyn Store, begin: &Begin, claimed: &mut Option<Lease>) -> Result<Lease, StoreError> {
    let lease = match (claimed.take(), begin.ignores_cancel) {
        (Some(claimed), _) => claimed,
        (None, true) => store.lease_ignoring_cancel(&begin.run).await?,
        (None, false) => store.lease(&begin.run).await?,
    };
    lease.stops(&begin.stop);
    Ok(lease)
}

/// Adds the records that a journal got since it was loaded, before the run was leased. Returns whether there are some.
async fn catch_up(store: &dyn Store, run: &RunId, signed: &mut Vec<SignedRecord>) -> Result<bool, StoreError> {
    let last = signed.len() - 1;
    let later = store.load_from(run, last as u64).await?;
    let has_grown = later != signed[last..];
    if has_grown {
        signed.truncate(last);
        signed.extend(later);
    }
    Ok(has_grown)
}

impl RuntimeServices {
    /// Verifies the journal of a run of a graph and reads what is needed of it, with its secrets.
    pub(crate) fn read_journal(
        &self,
        machine: &dyn Machine,
        run: &RunId,
        signed: &[SignedRecord],
        run_secrets: Option<&RunSecrets>,
    ) -> Result<Journal, StoredRunError> {
        let (_, key) = self.stored()?;
        read_journal(machine, run, signed, &key.public(), run_secrets, self.keeps_history)
    }

    /// Reads the journal of a run of a graph, with its secrets.
    pub(crate) async fn journal_of(&self, machine: &dyn Machine, run: &RunId) -> Result<Journal, StoredRunError> {
        let secrets = RunSecrets::open(tables(machine.graph()), run, self.encryption_key.as_ref(), true)?;
        let signed = self.stored()?.0.load(run).await?;
        self.read_journal(machine, run, &signed, secrets.as_deref())
    }

    /// Lets a fork know the texts that were secret in the run where it began, as far as the store has that run.
    async fn learn_origin(
        &self,
        machine: &dyn Machine,
        run_secrets: &RunSecrets,
        journal: &Journal,
    ) -> Result<(), StoreError> {
        let mut from = journal.start.from.as_ref().map(|from| from.run.clone());
        while let (Some(origin), Some(store)) = (from.take(), &self.store) {
            let signed = match store.load(&origin).await {
                Err(StoreError::NotFound(_)) => return Ok(()),
                signed => signed?,
            };
            let opened = RunSecrets::open(tables(machine.graph()), &origin, self.encryption_key.as_ref(), true);
            let Ok(Some(secrets)) = opened else { return Ok(()) };
            let unread = |error| tracing::warn!(%origin, %error, "a fork does not know the secrets of its origin");
            let read = self.read_journal(machine, &origin, &signed, Some(&secrets)).map_err(unread);
            from = read.ok().and_then(|journal| Some(journal.start.from?.run));
            run_secrets.learn_from(&secrets);
        }
        Ok(())
    }

    /// Returns what a run waits for, if its store knows that it waits, and nothing of it has happened.
    async fn still_waits(
        &self,
        code: &GraphTables,
        begin: &Begin,
        replayed: &Replayed,
        journal: &Journal,
    ) -> Result<Option<RunError>, StoreError> {
        let (Replayed { state, position, .. }, run) = (replayed, &begin.run);
        // A run that is to be cancelled ends.
        if begin.stop.is_set() {
            return Ok(None);
        }
        if begin.handed.as_ref().is_some_and(|signal| !position.received.contains(&signal.order)) {
            return Ok(None);
        }
        let Some(store) = self.store.as_ref().filter(|_| position.is_waiting() && !position.has_failed(code)) else {
            return Ok(None);
        };
        let found = store.find(run).await?;
        if found.status != Status::Waiting || found.is_cancelling {
            return Ok(None);
        }
        let (address, deadline) = (address_of(journal), journal.start.deadline);
        let inbox = begin.wait_time.limit(match address.as_ref().filter(|_| position.listens(code)) {
            Some(address) => store.inbox(&address.run).await?,
            None => Inbox::new(store.now().await?, Vec::new()),
        });
        let waits = open_waits(code, position);
        let has_signal = |wait: &Wait| {
            let mut own =
                inbox.signals.iter().filter_map(|one| Some((address.as_ref()?.own(&one.name)?, one.place.at)));
            own.any(|(name, at)| wait.accepts(name, at))
        };
        let is_over = |due: Option<i64>| due.is_some_and(|due| due <= inbox.at);
        let is_ready = || is_over(deadline) || waits.iter().any(|wait| is_over(wait.due) || has_signal(wait));
        if begin.wait_time != WaitTime::Held && is_ready() {
            return Ok(None);
        }
        let (steps, state) = (position.steps, Box::new(state_value(code, &**state, position)));
        let waits = match &begin.parent {
            Some(_) => waits_inside(code, position, deadline, journal.start.digest),
            None => waits,
        };
        Ok(Some(RunError::Waiting { run: run.clone(), steps, waits, state }))
    }

    /// Signs and appends the record that says that a run is resumed, and returns it.
    async fn append_resume(
        &self,
        lease: &Lease,
        chain: &mut Chain,
        entry: &Resume,
        open: Vec<Wait>,
    ) -> Result<SignedRecord, StoreError> {
        let (Some(store), Some(key)) = (&self.store, &self.key) else { return Err(StoreError::None) };
        let known = chain.count();
        let record = chain.sign("resume", entry, self.clock.now(), key);
        // The store forgot the waits if the run had ended, and never knew them if it is a fork.
        let waits = WaitChanges { open, ..WaitChanges::default() };
        store.append_waiting(lease, known, vec![record.clone()], Status::Running, waits).await?;
        Ok(record)
    }

    /// Returns the end of the journal of a run that had a status, if it has hooks that its process may not have asked there. A run that
    /// waits or has ended has asked them.
    fn unasked(
        &self,
        code: &GraphTables,
        was: Status,
        run: &RunId,
        signed: &[SignedRecord],
        run_secrets: Option<&RunSecrets>,
    ) -> Result<Option<Unasked>, JournalError> {
        let has_hooks = || !self.hooks.is_empty() || ASKED.iter().any(|event| code.hooks(*event).next().is_some());
        if was != Status::Running || !has_hooks() {
            return Ok(None);
        }
        let mut unasked = unasked(run, signed)?;
        if let (Some(Unasked::Step(record)), Some(run_secrets)) = (&mut unasked, run_secrets) {
            run_secrets.decrypt_record(code, record)?;
        }
        Ok(unasked)
    }

    /// Finds a run in the store, and continues it unless it has ended or waits. Uses the lease that was `claimed` for it, and
    /// leaves it there if the run cannot be resumed.
    pub(crate) async fn take_up(
        self: &Arc<Self>,
        begin: Begin,
        machine: Arc<dyn Machine>,
        claimed: &mut Option<Lease>,
    ) -> Result<Taken, ResumeError> {
        let run = &begin.run.clone();
        let ((store, key), misfit) = (self.stored()?, StoredRunError::journal(run));
        let code = tables(machine.graph());
        self.can_wait(&*machine, &begin).await?;
        let run_secrets = RunSecrets::open(code, run, self.encryption_key.as_ref(), true)?;
        let read = |signed: &[SignedRecord]| {
            let journal = self.read_journal(&*machine, run, signed, run_secrets.as_deref())?;
            // A nested run continues with its parent, which has its limits (R167).
            match &journal.start.parent {
                parent if *parent == begin.parent => Ok(journal),
                Some(Parent { run: outer, .. }) if begin.parent.is_none() => {
                    Err(StoredRunError::Inside { run: run.clone(), outer: outer.clone() })
                }
                _ => {
                    let reason = "another run has the id that it would have".to_owned();
                    Err(misfit(JournalError::Misfit { seq: 0, reason }))
                }
            }
        };
        // A run that ended is read without a lease: nobody writes to it.
        let mut signed = store.load(run).await?;
        let mut journal = read(&signed)?;
        let ended = |journal: &Journal, signed: &[SignedRecord]| {
            let ended = result_of(code, &*machine, journal, self.keeps_history).map_err(&misfit)?;
            Ok::<_, ResumeError>(ended.map(|ended| {
                // Its process may have died before its observers saw the end, such as an observer that keeps files of the run.
                self.recorded(run, machine.graph(), signed);
                Taken::Ended(Box::new(ended))
            }))
        };
        if let Some(taken) = ended(&journal, &signed)? {
            return Ok(taken);
        }
        let add_up = |journal: &Journal| add_up(code, &*machine, journal).map_err(&misfit);
        // All that can fail is tried before the run is leased, because other processes see the lease.
        let mut replayed = add_up(&journal)?;
        let (public, encryption_key) = (key.public(), self.encryption_key.as_ref());
        let address = address_of(&journal);
        if let Some(waiting) = self.still_waits(code, &begin, &replayed, &journal).await? {
            self.recorded(run, machine.graph(), &signed);
            return Ok(Taken::Waiting(Box::new(waiting)));
        }
        if let Some(run_secrets) = &run_secrets {
            self.learn_origin(&*machine, run_secrets, &journal).await?;
        }
        verify_waiting(&machine, run, &replayed.position, &**store, &public, encryption_key).await?;
        verify_inside(&machine, run, &signed, &replayed.done, &**store, &public, encryption_key).await?;
        // A resumed run may not use capabilities that its first caller did not allow.
        let capabilities = journal.start.capabilities.clone().map(Grants::new);
        let ceiling: Vec<Grants> = begin.ceiling.iter().cloned().chain(capabilities).collect();
        let allowed = allowed(&*machine, &ceiling)?;
        let lease = lease_of(&**store, &begin, claimed).await?;
        let was = store.find(run).await?.status;
        if catch_up(&**store, run, &mut signed).await? {
            journal = read(&signed)?;
            if let Some(taken) = ended(&journal, &signed)? {
                return Ok(taken);
            }
            replayed = add_up(&journal)?;
        }
        let unasked = self.unasked(code, was, run, &signed, run_secrets.as_deref()).map_err(&misfit)?;
        let Replayed { state, mut position, done } = replayed;
        let (limit, depth) = (begin.max_steps, begin.depth);
        let entry = Resume { steps: position.steps, grants: granted(&*machine, &ceiling), limit, depth };
        entry.apply(&mut position);
        // All of a run that waits is durable, and its nested runs wait too. Those of one that was cancelled or failed were ended with it.
        let looks_inside = was != Status::Waiting && position.waits.iter().any(|wait| wait.opened.is_inside());
        let before = match counts_inside(code, &position, begin.meter.is_some()) {
            visits if visits.is_empty() => BTreeMap::new(),
            visits => steps_inside(&**store, &public, run, visits).await?,
        };
        let (mut chain, due) = (journal.chain, journal.due);
        let open = match &begin.parent {
            Some(_) => Vec::new(),
            None => waits_to_store(code, &position, journal.start.deadline),
        };
        let appended = self.append_resume(&lease, &mut chain, &entry, open).await;
        signed.push(appended?);
        self.recorded(run, machine.graph(), &signed);
        let journal_writer = JournalWriter::new(self, &machine, begin.durability, lease, chain, due);
        let depth = begin.depth.into_iter().chain(journal.start.depth).min();
        let deadline = self.known_deadline(journal.start.deadline).await?;
        let address = address.filter(|_| begin.parent.is_some());
        let limits = journal.start.task.as_ref().map_or(begin.limits, |task| task.limits);
        let begin = Begin { depth, limits, ceiling, address, ..begin };
        let parts = EngineParts {
            machine,
            allowed,
            run_secrets,
            state,
            position,
            journal: Some(journal_writer),
            done,
            before,
            deadline,
            is_new: matches!(unasked, Some(Unasked::Start)),
            unasked: match unasked {
                Some(Unasked::Step(record)) => Some(record),
                _ => None,
            },
            looks_inside,
            begun_under: journal.start.digest,
        };
        Ok(Taken::Unfinished(Box::new(self.engine(begin, parts))))
    }
}
