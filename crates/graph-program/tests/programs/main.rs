//! Programs that call tools: turns, failures, crashes, and programs that misbehave.

mod clients;
mod contracts;
mod crashes;
mod hostile;
mod processes;
mod random;
mod tree;
mod turns;
