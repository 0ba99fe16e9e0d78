//! Tests of the messages of LDAP.

mod fuzz;
