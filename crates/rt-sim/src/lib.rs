//! The simulated backend of rt: one thread, virtual time, seeded scheduling and faults.
