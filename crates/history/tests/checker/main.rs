//! The checker, tested with histories that it must accept and with histories that it must reject.

mod causal;
mod causal_large;
mod causal_oracle;
mod explanations;
mod forgetful;
mod forgotten;
mod incomplete;
mod large;
mod lists;
mod moved;
mod mutations;
mod oracle;
mod process_order;
mod registers;
mod replicas;
mod serial;
mod strict;
mod support;
