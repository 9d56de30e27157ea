use super::*;

const GOOD: &str = r#"cluster = "bank"
node = 1
listen = "127.0.0.1:7401"
peers = ["127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402"]
geography = "reg"
site = "zone-2"

[[keyspace]]
name = "accounts"
protocol = "morty"

[[keyspace]]
name = "audit"

[limits]
key_bytes = 100
"#;

fn parse(text: &str) -> Result<NodeConfiguration, String> {
    NodeConfiguration::parse(text, "node.toml", &Replicas::default())
        .map_err(|error| error.to_string())
}

fn error_after(from: &str, to: &str) -> String {
    let text = GOOD.replace(from, to);
    assert_ne!(text, GOOD);
    let error = parse(&text).unwrap_err();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn a_file_says_what_it_says_and_the_rest_has_defaults() {
    let configuration = parse(GOOD).unwrap();
    assert_eq!((configuration.node, configuration.cluster.as_str()), (1, "bank"));
    assert_eq!(configuration.keyspaces[1], KeyspaceConfiguration::new("audit", "morty"));
    assert_eq!(configuration.limits.key_bytes, 100);
    assert_eq!(configuration.limits.value_bytes, Limits::default().value_bytes);
    let least = parse("node = 0\nlisten = 'a:1'\npeers = ['a:1']").unwrap();
    let durability = Durability::Sync;
    let usual = NodeConfiguration::new(0, vec!["a:1".to_string()]);
    assert_eq!(least, NodeConfiguration { durability, ..usual });
}

#[test]
fn an_error_names_the_file_the_line_and_what_to_do() {
    let error = error_after("node = 1", "node = 3");
    assert_eq!(
        error,
        "node.toml:2: `node` is 3, but `peers` lists nodes 0 to 2: choose one of them"
    );
    let error = error_after(", \"127.0.0.1:7402\"", "");
    assert_eq!(error, "node.toml:4: `peers` lists 2 nodes: list an odd number up to 63");
    let error = error_after("[limits]", "[transport]\nframe_bytes = 1048576\n[limits]");
    assert!(error.contains("`frame_bytes` must be between 67108864 and"), "{error}");
    let error = error_after("\"zone-2\"", "\"moon\"");
    assert!(error.starts_with("node.toml:6: geography `reg` has no site `moon`; choose"));
    let error = error_after("\"morty\"", "\"mort\"");
    assert!(error.starts_with("node.toml:8: there is no protocol `mort`; choose one of "));
    let error = error_after("name = \"audit\"", "name = \"audit\"\npartitions = 1025");
    assert_eq!(
        error,
        "node.toml:12: keyspace `audit` has 1025 partitions: choose 1 to 1024 of them"
    );
    let error = error_after("cluster = \"bank\"", "cores = 0");
    assert_eq!(error, "node.toml:1: `cores` is 0: choose 1 or more");
    let error = error_after("\"audit\"", "\"accounts\"");
    assert_eq!(error, "node.toml:12: there are two keyspaces `accounts`: rename one of them");
}

/// A configuration of so many nodes with the keyspace `a` of this protocol, and these settings of it.
fn of_nodes(nodes: usize, protocol: &str, more: &str) -> Result<NodeConfiguration, String> {
    let peers: Vec<String> = (0..nodes).map(|node| format!("127.0.0.1:{}", 7400 + node)).collect();
    parse(&format!(
        "node = 0\nlisten = 'a:1'\npeers = {peers:?}\n[[keyspace]]\nname = 'a'\nprotocol = '{protocol}'\n{more}"
    ))
}

#[test]
fn the_nodes_are_divided_among_the_sites_of_a_keyspace() {
    for (nodes, sites) in [(9, 3), (3, 3), (2, 2), (6, 2), (5, 1)] {
        let configuration = of_nodes(nodes, "eiger-port", &format!("sites = {sites}")).unwrap();
        assert_eq!(configuration.keyspaces[0].sites, sites);
    }
    let error = |nodes, protocol, more| of_nodes(nodes, protocol, more).unwrap_err();
    for (error, what) in [
        (error(3, "eiger", "sites = 0"), "keyspace `a` has 0 sites: choose 1 or more"),
        (
            error(9, "morty", "sites = 3"),
            "keyspace `a` has 3 sites, and protocol `morty` has only one: leave `sites` out, or choose one of the \
             protocols eiger-port, eiger",
        ),
        (
            error(9, "eiger", "sites = 2"),
            "keyspace `a` has 2 sites, and `peers` lists 9 nodes, which can't be divided evenly: list as many nodes \
             for each site",
        ),
        (
            error(6, "eiger", "sites = 3"),
            "keyspace `a` has 3 sites with 2 of the 6 nodes each: give each site an odd number",
        ),
        (
            error(6, "eiger", "sites = 2\n[[keyspace]]\nname = 'b'\nprotocol = 'eiger'"),
            "keyspace `b` has one site, with all 6 nodes: list an odd number of nodes, or give it so many `sites` \
             that each has an odd number",
        ),
        (
            error(3, "eiger", "sites = 3\npartitions = 342"),
            "keyspace `a` has 342 partitions at each of its 3 sites: choose 1 to 341 of them",
        ),
    ] {
        assert!(error.ends_with(&format!(": {what}")), "{error}");
    }
    let error = error(6, "eiger", "");
    assert!(error.ends_with("`peers` lists 6 nodes: list an odd number up to 63"), "{error}");
}

#[test]
fn the_nodes_of_a_site_are_at_one_place_of_an_emulated_geography() {
    let geography = Geography::named("reg").unwrap();
    let places = |more| {
        let configuration = of_nodes(9, "eiger", more).unwrap();
        (0..9).map(|node| configuration.usual_place(geography, node)).collect::<Vec<_>>()
    };
    assert_eq!(places("sites = 3"), [0, 0, 0, 1, 1, 1, 2, 2, 2]);
    assert_eq!(places("sites = 1"), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn clients_of_a_node_belong_to_its_site_if_all_keyspaces_have_the_same_sites() {
    let homes = |more: &str| {
        let configuration = of_nodes(9, "eiger", more).unwrap();
        let at = |node| NodeConfiguration { node, ..configuration.clone() }.home();
        [at(0), at(3), at(8)]
    };
    assert_eq!(homes("sites = 3"), [Some(0), Some(1), Some(2)]);
    assert_eq!(homes("sites = 1"), [None; 3]);
    let also =
        |sites| format!("sites = 3\n[[keyspace]]\nname = 'b'\nprotocol = 'eiger'\nsites = {sites}");
    assert_eq!(homes(&also(3)), [Some(0), Some(1), Some(2)]);
    assert_eq!(homes(&also(9)), [None; 3], "of which keyspace?");
}

#[test]
fn what_no_node_can_work_with_is_refused_by_name() {
    let error = error_after("127.0.0.1:7402", "127.0.0.1:7400");
    let what = "node.toml:4: `peers` has `127.0.0.1:7400` for nodes 0 and 2: give each node";
    assert!(error.starts_with(what), "{error}");
    for wrong in ["127.0.0.1", ":7402", "host:", "host:70000", "host:http"] {
        let error = error_after("127.0.0.1:7402", wrong);
        let what = format!("node.toml:4: `peers` has `{wrong}`: write host:port");
        assert!(error.starts_with(&what), "{error}");
    }
    for name in ["connections", "client_bytes", "most_waiting_bytes"] {
        let error = error_after("[limits]", &format!("[transport]\n{name} = 0\n[limits]"));
        assert!(error.contains(&format!("`{name}` is 0")), "{error}");
    }
    for setting in ["election_timeout_ms", "recovery_after_ms", "clock_bound_ms"] {
        let settings = format!("name = \"audit\"\nsettings = {{ {setting} = 0 }}");
        let error = error_after("name = \"audit\"", &settings);
        let what = format!("node.toml:12: keyspace `audit`: `{setting}` is 0: choose 1 or more");
        assert!(error.starts_with(&what), "{error}");
    }
}

#[test]
fn numbers_with_which_nothing_works_are_refused() {
    for name in ["key_bytes", "value_bytes", "transaction_bytes"] {
        let error = error_after("key_bytes = 100", &format!("{name} = 0"));
        assert!(error.starts_with("node.toml:15: ") && error.contains(name), "{error}");
    }
    let transport = "[transport]\nclock_uncertainty_us = 9223372036854775807\n[limits]";
    let error = error_after("[limits]", transport);
    assert!(error.contains("choose less than 60000000 (a minute)"), "{error}");
    parse(&GOOD.replace("[limits]", "[transport]\npoll_us = 10000\n[limits]")).unwrap();
    let error = error_after("cluster = \"bank\"", "cluster = \"a\\tb\"");
    assert!(error.contains("`a\\tb`: choose a name without control"), "{error}");
    let error = error_after("[limits]", "[transport]\npoll_us = 10001\n[limits]");
    assert!(error.contains("choose at most 10000"), "{error}");
    let settings = "name = \"audit\"\nsettings = { truncation_lag_ms = 0 }";
    let error = error_after("name = \"audit\"", settings);
    assert!(error.contains("`truncation_lag_ms` is 0: choose 20 at least"), "{error}");
    let error = error_after("127.0.0.1:7402", "127.0.0.1:0");
    assert!(error.starts_with("node.toml:4: `peers` has `127.0.0.1:0`"), "{error}");
}

#[test]
fn a_mistake_in_the_text_is_explained_with_the_key_and_what_to_write() {
    for (from, to, expected) in [
        ("node = 1\n", "", "node.toml:1: `node` is missing: write this node's number, as node = 0"),
        (
            "node = 1",
            "node = -1",
            "node.toml:2: `node`: write a whole number from 0 on instead of the number `-1`",
        ),
        (
            "node = 1",
            "node = \"1\"",
            "node.toml:2: `node`: write a whole number from 0 on instead of the text \"1\"",
        ),
        (
            "\"127.0.0.1:7401\"\npeers",
            "7401\npeers",
            "node.toml:3: `listen`: write a text in quotes instead of the number `7401`",
        ),
        ("name = \"audit\"", "", "node.toml:12: `name` is missing: give the keyspace a name"),
        (
            "node = 1",
            "node = 1\npin = 1",
            "node.toml:3: `pin`: write true or false instead of the number `1`",
        ),
    ] {
        let error = error_after(from, to);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_keyspace_of_registers_has_no_more_replicas_than_its_quorums_are_made_for() {
    let peers: Vec<String> = (7400..7409).map(|port| format!("127.0.0.1:{port}")).collect();
    let text = |protocol| {
        format!(
            "node = 0\nlisten = 'a:1'\npeers = {peers:?}\n[[keyspace]]\nname = 'flags'\nprotocol = '{protocol}'"
        )
    };
    let error = parse(&text("abd")).unwrap_err();
    assert!(error.starts_with("node.toml:4: keyspace `flags`: 9 replicas are too many"), "{error}");
    assert!(parse(&text("morty")).is_ok());
}

#[test]
fn results_that_are_forgotten_by_clients_clocks_are_kept_for_longer_than_these_differ() {
    let text = |protocol, outcomes_ms| {
        format!(
            "node = 0\nlisten = 'a:1'\npeers = ['a:1']\n[[keyspace]]\nname = 'flags'\nprotocol = '{protocol}'\n\
             settings = {{ outcomes_ms = {outcomes_ms}, clock_bound_ms = 500 }}"
        )
    };
    const WHAT: &str = "node.toml:4: keyspace `flags`: `outcomes_ms` is 1999: choose 2000 at least, 4 times `clock_bound_ms`";
    for protocol in ["epaxos", "gryff", "gryff-rsc", "multipaxos"] {
        let error = parse(&text(protocol, 1999)).unwrap_err();
        assert!(error.starts_with(WHAT), "{protocol}: {error}");
        assert!(parse(&text(protocol, 2000)).is_ok(), "{protocol}");
    }
    // `abd` keeps no results, and `morty` does not forget outcomes by the clock of a client.
    assert!(parse(&text("abd", 1)).is_ok() && parse(&text("morty", 1)).is_ok());
}

#[test]
fn what_is_not_known_is_an_error_with_its_line() {
    let error = error_after("key_bytes", "kye_bytes");
    assert!(error.starts_with("node.toml:16: there is no `kye_bytes`; choose one of"), "{error}");
    let error = error_after("node = 1", "node = \"one\"");
    assert!(error.starts_with("node.toml:2: "), "{error}");
    let error = error_after("cluster = \"bank\"", "cluster = ");
    assert!(error.starts_with("node.toml:1: "), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = NodeConfiguration::read("/nowhere/node.toml").unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/node.toml: can't read"), "{error}");
}
