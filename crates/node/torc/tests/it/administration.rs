//! Access to the ports of administration and metrics: `torc nodetool` with names and passwords, and addresses beyond loopback.

use std::io::Write;
use std::net::IpAddr;

use crate::client::Client;
use crate::node::{Setup, run, torc};

/// The tool's output, or its errors when it failed.
fn tool(address: IpAddr, arguments: &[&str]) -> Result<String, String> {
    let host = address.to_string();
    let out = torc(&[&["nodetool", "-h", &host], arguments].concat()).output().expect("the binary is there");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    if out.status.success() { Ok(text(out.stdout)) } else { Err(text(out.stderr)) }
}

#[test]
fn administrators_log_in_as_superusers() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let setup = Setup::new(&data);
    let address = setup.address.to_string();
    let node = setup
        .option("api_address", &address)
        .option("authenticator", "PasswordAuthenticator")
        .option("auth_bcrypt_gensalt_log2_rounds", "4")
        .option("auth_failed_logins_max", "3")
        .option("api_local_login", "true")
        .start();
    let ask = |arguments: &[&str]| tool(node.address, arguments);
    let refused = |arguments: &[&str], why: &str| {
        let error = ask(arguments).expect_err("it is refused");
        assert!(error.contains(why), "{arguments:?}: {error}");
    };
    refused(&["status"], "-pw PASSWORD");
    refused(&["-u", "cassandra", "status"], "-u needs a password");
    refused(&["-pw", "cassandra", "status"], "needs a user name (-u)");
    assert!(ask(&["-u", "cassandra", "status", "-pw", "cassandra"]).is_ok(), "before and behind the verb");
    refused(&["--certfile", "x", "status"], "go together");
    let root = ["-u", "cassandra", "-pw", "cassandra"];
    assert!(ask(&[&root[..], &["status"]].concat()).expect("a superuser asks").contains(&address));
    assert_eq!(ask(&[&root[..], &["flush"]].concat()), Ok(String::new()));
    let mut client =
        Client::log_in((node.address, 9042).into(), "cassandra", "cassandra").expect("it is right");
    client.query("CREATE ROLE ann WITH PASSWORD = 'a b:c' AND LOGIN = true");
    client.query("CREATE ROLE boss WITH SUPERUSER = true");
    client.query("CREATE ROLE eve WITH PASSWORD = 'secret'");
    let file = dir.path().join("passwords");
    writeln!(std::fs::File::create(&file).unwrap(), "cassandra cassandra\nann a b:c").unwrap();
    let ann = ["-u", "ann", "-pwf", file.to_str().unwrap()];
    assert!(ask(&[&ann[..], &["status"]].concat()).is_ok(), "it may ask");
    refused(&[&ann[..], &["flush"]].concat(), "role ann is no superuser");
    refused(&[&ann[..], &["scrub", "system_traces"]].concat(), "role ann is no superuser");
    client.query("GRANT boss TO ann");
    assert_eq!(ask(&[&ann[..], &["flush"]].concat()), Ok(String::new()), "by the role that it was granted");
    refused(&["-u", "eve", "-pw", "secret", "status"], "eve is not permitted to log in");
    refused(&["-u", "bob", "-pwf", file.to_str().unwrap(), "status"], "has no password of bob");
    for _ in 0..3 {
        refused(&["-u", "cassandra", "-pw", "guess", "flush"], "password are incorrect");
    }
    refused(&[&root[..], &["flush"]].concat(), "Too many failed logins");
}

#[test]
fn operators_on_the_node_need_no_login() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let address = setup.address.to_string();
    let setup = setup.option("api_address", &address).option("authenticator", "PasswordAuthenticator");
    let node = setup.option("auth_bcrypt_gensalt_log2_rounds", "4").start();
    assert_eq!(tool(node.address, &["flush"]), Ok(String::new()));
    assert_eq!(tool(node.address, &["-u", "any", "-pw", "thing", "flush"]), Ok(String::new()));
}

#[test]
fn a_port_for_everybody_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for option in ["api_address", "prometheus_address"] {
        let file = dir.path().join("torc.yaml");
        let folder = dir.path().join("data");
        std::fs::write(&file, format!("data_file_directories: {}\n{option}: 0.0.0.0\n", folder.display()))
            .unwrap();
        let mut command = torc(&["server", "--config"]);
        command.arg(&file);
        let ended = run(command);
        assert!(!ended.status.success());
        for word in [option, "authenticator", "api_encryption_options", "require_client_auth"] {
            assert!(ended.err.contains(word), "{word}: {}", ended.err);
        }
        assert!(!folder.exists(), "it has not begun");
    }
}
