//! How each command of the documents is tested.

/// How a command is tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// As printed, in an empty directory.
    Alone,
    /// This shorter command runs in its place, in an empty directory.
    Shorter(&'static str),
    /// As printed, on the cluster of three processes.
    OnCluster,
    /// This shorter command runs in its place, on the cluster of three processes.
    ShorterOnCluster(&'static str),
    /// As printed. It runs this node of the cluster.
    Node(usize),
    /// Restarts this node of the cluster. The directory in the command is replaced by an empty one.
    Replacement(usize),
    /// It does not run, for this reason.
    Not(&'static str),
}

const BUILD: &str = "builds the program; cargo has built the one that is tested";
const SUITE: &str = "CI runs `cargo test --workspace`, of which this test is a part";
const MDBOOK: &str = "mdBook is not part of CI; another test checks the summary and the links";
const PROCEDURES: &str = "needs a keyspace of procedures; tests/commands/procedures.rs runs the same on a cluster that has one";
const SITES: &str = "needs several sites; crates/local/tests/loopback/rebuilt.rs does the same";
const TRACES: &str = "needs clients that commit while it records; tests/commands/compare.rs records and runs a trace";
const CRITERION: &str = "measures for minutes; clippy builds it in CI";
const SEEDS: &str = "runs a test of CI with more seeds, for minutes to hours";

/// All commands of README.md, CONTRIBUTING.md and docs/. Commands that depend on others are after them.
pub(crate) const TABLE: &[(&str, How)] = &[
    ("cargo build --release", How::Not(BUILD)),
    ("cargo install --path crates/cli", How::Not(BUILD)),
    ("cargo test --workspace", How::Not(SUITE)),
    ("mdbook build docs", How::Not(MDBOOK)),
    ("SERRIED_SEEDS=2000 cargo test --release -p serried-protocols --test suite", How::Not(SEEDS)),
    (
        "SERRIED_SEEDS=2000 cargo test --release -p serried-protocols --test registers",
        How::Not(SEEDS),
    ),
    (
        "SERRIED_SEEDS=2000 cargo test --release -p serried-protocols --test procedures",
        How::Not(SEEDS),
    ),
    (
        "SERRIED_SEEDS=2000 cargo test --release -p serried-protocols --test snapshots",
        How::Not(SEEDS),
    ),
    (
        "SERRIED_SEEDS=500 SERRIED_ALWAYS=1 cargo test --release -p serried-protocols --test suite",
        How::Not(SEEDS),
    ),
    (
        "SERRIED_PROTOCOL=abd SERRIED_SEEDS=500 cargo test --release -p serried-protocols --test registers",
        How::Not(SEEDS),
    ),
    (
        "SNAPSHOTS=overwrite cargo test -p serried-cli --test snapshots",
        How::Not("rewrites the files that another test compares"),
    ),
    ("cargo bench -p serried-parts --bench parts", How::Not(CRITERION)),
    ("cargo bench -p serried-protocols --bench codec", How::Not(CRITERION)),
    ("cargo bench -p serried-storage --bench log", How::Not(CRITERION)),
    ("cargo bench -p serried-history --bench checkers", How::Not(CRITERION)),
    ("serried chop transfer.toml --merge --draw transfer.svg", How::Alone),
    (
        "serried chop transfer.toml --merge --call 'transfer {\"from\": 1, \"to\": 2, \"amount\": 0, \"day\": 3}'",
        How::Alone,
    ),
    (
        "serried procedure add serried://127.0.0.1:7400 transfer.toml --merge --keyspace shop",
        How::Not(PROCEDURES),
    ),
    ("serried procedure list serried://127.0.0.1:7400 --keyspace shop", How::Not(PROCEDURES)),
    (
        "serried procedure remove serried://127.0.0.1:7400 transfer --keyspace shop",
        How::Not(PROCEDURES),
    ),
    (
        "serried shell serried://127.0.0.1:7400 --keyspace shop -e 'call transfer from=1 to=2 amount=0 day=3'",
        How::Not(PROCEDURES),
    ),
    (
        "serried shell serried://127.0.0.1:7400 --keyspace shop -e 'call transfer {from: 1, to: 2, amount: 0, day: 3}'",
        How::Not(PROCEDURES),
    ),
    // The demo and benchmarks of clusters of their own.
    (
        "cargo run --release -- demo",
        How::Shorter("serried demo --keys 1000 --clients 4 --seconds 0.2"),
    ),
    ("serried demo", How::Shorter("serried demo --keys 1000 --clients 4 --seconds 0.2")),
    (
        "cargo run --release -- bench register --protocol abd --reads 0.5 --check",
        How::Shorter(
            "serried bench register --protocol abd --reads 0.5 --check --seconds 0.2 --warm-up 0",
        ),
    ),
    (
        "serried bench retwis --clients 16,64",
        How::Shorter("serried bench retwis --clients 16,64 --keys 1000 --seconds 0.1 --warm-up 0"),
    ),
    (
        "serried bench tpcc --warehouses 8 --check",
        How::Shorter(
            "serried bench tpcc --warehouses 8 --check --small --clients 2 --seconds 0.2 --warm-up 0",
        ),
    ),
    (
        "serried bench retwis --geo reg --clients 96",
        How::Shorter(
            "serried bench retwis --geo reg --clients 96 --keys 1000 --seconds 0.2 --warm-up 0",
        ),
    ),
    (
        "serried bench retwis --durability sync",
        How::Shorter(
            "serried bench retwis --durability sync --protocol morty --keys 1000 --clients 2 --seconds 0.2 --warm-up 0",
        ),
    ),
    (
        "serried bench f1-wf --keys 100000 --clients 4 --rate 2000 --check",
        How::Shorter(
            "serried bench f1-wf --keys 100 --clients 4 --rate 2000 --check --seconds 0.1 --warm-up 0",
        ),
    ),
    (
        "serried bench ycsb --clients 64 --conflicts 0.25 --thrifty",
        How::Shorter(
            "serried bench ycsb --clients 64 --conflicts 0.25 --thrifty --seconds 0.1 --warm-up 0",
        ),
    ),
    (
        "serried bench ycsb --reads 0.945 --writes 0.045 --replicas 5 --durability sync",
        How::Shorter(
            "serried bench ycsb --reads 0.945 --writes 0.045 --replicas 5 --seconds 0.1 --warm-up 0",
        ),
    ),
    (
        "serried bench eiger --protocol eiger-port --sites 3 --replicas 1 --keys 10000 --clients 12",
        How::Shorter(
            "serried bench eiger --protocol eiger-port --sites 3 --replicas 1 --keys 100 --clients 3 --seconds 0.1 --warm-up 0",
        ),
    ),
    // Simulations, and what judges them.
    (
        "cargo run --release -- sim ycsb --protocol abd --reads 0.5",
        How::Shorter("serried sim ycsb --protocol abd --reads 0.5 --seconds 0.5"),
    ),
    (
        "serried sim retwis --geo glo --clients 256,1024",
        How::Shorter("serried sim retwis --geo glo --clients 256,1024 --seconds 0.1 --warm-up 0"),
    ),
    ("serried sim bank --geo con --loss 0.02 --reordering 0.2 --check --seed 7", How::Alone),
    ("serried sim list-append --faults crashes,blackouts,lost-disks --check --seed 3", How::Alone),
    (
        "serried sim list-append-calls --faults crashes,blackouts,lost-disks --check --seed 3",
        How::Alone,
    ),
    (
        "serried bench tpcc-calls --clients 16",
        How::Shorter("serried bench tpcc-calls --clients 2 --seconds 0.2 --warm-up 0"),
    ),
    (
        "serried bench tpcc-calls --districts 30 --clients 4 --rate 500",
        How::Shorter(
            "serried bench tpcc-calls --small --districts 30 --clients 4 --rate 500 --seconds 0.2 --warm-up 0",
        ),
    ),
    (
        "serried sim f1 --geo lan --replicas 1 --partitions 8 --cores 1 --clients 8 --rate 20000",
        How::Shorter(
            "serried sim f1 --geo lan --replicas 1 --partitions 8 --cores 1 --clients 8 --rate 20000 --seconds 0.05 --warm-up 0",
        ),
    ),
    (
        "serried sim ycsb --geo gryff-3 --clients 48 --theta 0.9 --reads 0.5",
        How::Shorter(
            "serried sim ycsb --geo gryff-3 --clients 48 --theta 0.9 --reads 0.5 --seconds 1",
        ),
    ),
    (
        "serried sim tail-at-scale --geo gryff-5 --replicas 5 --clients 20",
        How::Shorter(
            "serried sim tail-at-scale --geo gryff-5 --replicas 5 --clients 20 --seconds 0.5 --warm-up 0",
        ),
    ),
    (
        "serried sim list-append --history lists.jsonl --protocol morty && serried check lists.jsonl",
        How::Alone,
    ),
    ("serried check lists.jsonl", How::Alone),
    ("serried check --guarantee strict-serializable lists.jsonl", How::Alone),
    (
        "serried sim register --geo lan --loss 0.01 --protocol gryff --history registers.jsonl && serried check registers.jsonl",
        How::Shorter(
            "serried sim register --geo lan --loss 0.01 --protocol gryff --seconds 0.2 --warm-up 0 --history registers.jsonl && serried check registers.jsonl",
        ),
    ),
    ("serried check --guarantee regular-sequential registers.jsonl", How::Alone),
    (
        "serried sim snapshot --protocol port --replicas 3 --check",
        How::Shorter(
            "serried sim snapshot --protocol port --replicas 3 --check --seconds 0.2 --warm-up 0",
        ),
    ),
    (
        "serried sim ycsb-groups --protocol port,scylla-occ,plain --geo lan --replicas 1 --partitions 8",
        How::Shorter(
            "serried sim ycsb-groups --protocol port,scylla-occ,plain --geo lan --replicas 1 --partitions 8 --keys 1000 --seconds 0.05 --warm-up 0",
        ),
    ),
    (
        "serried sim ycsb-groups --protocol port-seo,scylla-occ --geo lan --replicas 1 --partitions 8",
        How::Shorter(
            "serried sim ycsb-groups --protocol port-seo,scylla-occ --geo lan --replicas 1 --partitions 8 --keys 1000 --seconds 0.05 --warm-up 0",
        ),
    ),
    (
        "serried compare retwis --geo reg --clients 64",
        How::Shorter(
            "serried compare retwis --geo reg --clients 8 --seconds 0.1 --warm-up 0 --seeds 1",
        ),
    ),
    (
        "serried compare bank --durability sync --flush-us 900",
        How::Shorter(
            "serried compare bank --durability sync --flush-us 900 --seconds 0.1 --warm-up 0 --seeds 1",
        ),
    ),
    (
        "serried compare retwis --costs costs.toml",
        How::Shorter(
            "serried compare retwis --costs costs.toml --seconds 0.05 --warm-up 0 --seeds 1",
        ),
    ),
    (
        "serried record serried://127.0.0.1:7400 --keyspace accounts --output accounts.trace",
        How::Not(TRACES),
    ),
    ("serried compare --trace accounts.trace", How::Not(TRACES)),
    ("serried compare --trace accounts.trace --shared-cores 2", How::Not(TRACES)),
    ("serried bench --trace accounts.trace --protocol morty,ncc", How::Not(TRACES)),
    (
        "serried windows --sim retwis --geo glo --clients 256",
        How::Shorter("serried windows --sim retwis --geo glo --clients 256 --warm-up 0.1"),
    ),
    (
        "serried calibrate --output costs.toml",
        How::Not("starts many clusters, and so takes up to a minute; crates/calibrate has a test"),
    ),
    (
        "serried sim retwis --geo reg --costs costs.toml",
        How::Shorter("serried sim retwis --geo reg --costs costs.toml --seconds 0.5"),
    ),
    (
        "serried reproduce morty-fig7 --quick",
        How::Shorter("serried reproduce morty-fig7 --quick --clients 2 --seconds 0.1 --warm-up 0"),
    ),
    (
        "serried reproduce gryff-fig7",
        How::Shorter("serried reproduce gryff-fig7 --quick --clients 2 --seconds 0.1 --warm-up 0"),
    ),
    (
        "serried reproduce ncc-fig7a --quick",
        How::Shorter("serried reproduce ncc-fig7a --quick --rate 1000 --seconds 0.1 --warm-up 0"),
    ),
    (
        "serried reproduce rococo-fig14 --quick --places 1,20",
        How::Shorter(
            "serried reproduce rococo-fig14 --quick --places 1,2 --keys 20 --seconds 0.1 --warm-up 0",
        ),
    ),
    // Tortures.
    ("serried torture --seconds 600", How::Shorter("serried torture --seconds 2")),
    (
        "serried torture --seconds 600 --all-at-once --lose-disks --damage --cut-links",
        How::Not(
            "tests/torture.rs tests these options; they take longer than the other commands together",
        ),
    ),
    (
        "serried torture --seconds 600 --workload register --protocol gryff",
        How::Shorter("serried torture --seconds 2 --workload register --protocol gryff"),
    ),
    (
        "serried torture --seconds 600 --workload calls --protocol rococo",
        How::Shorter("serried torture --seconds 2 --workload calls --protocol rococo"),
    ),
    // The cluster of three processes.
    ("serried serve --config node-0.toml --metrics 127.0.0.1:9400", How::Node(0)),
    ("serried serve --config node-1.toml --metrics 127.0.0.1:9401", How::Node(1)),
    ("serried serve --config node-2.toml --metrics 127.0.0.1:9402", How::Node(2)),
    ("serried status serried://127.0.0.1:7400", How::OnCluster),
    ("serried shell serried://127.0.0.1:7400 --keyspace accounts", How::OnCluster),
    (
        "serried shell serried://127.0.0.1:7400 --keyspace flags -e 'add visits 1; cas leader - node-2; get leader'",
        How::OnCluster,
    ),
    (
        "serried bench bank --connect serried://127.0.0.1:7400 --keyspace accounts",
        How::ShorterOnCluster(
            "serried bench bank --connect serried://127.0.0.1:7400 --keyspace accounts --seconds 0.5 --warm-up 0",
        ),
    ),
    ("serried windows serried://127.0.0.1:7400 --keyspace accounts", How::OnCluster),
    (
        "serried windows serried://127.0.0.1:7400 --keyspace accounts --key alice --for 1s --svg alice.svg",
        How::OnCluster,
    ),
    (
        "serried serve --config node-2.toml --data /var/lib/serried-new --rejoin",
        How::Replacement(2),
    ),
    (
        "serried shell \"serried://127.0.0.1:7400,127.0.0.1:7401,127.0.0.1:7402?home=1\" --keyspace posts",
        How::Not(SITES),
    ),
    (
        "serried serve --config node-3.toml --data /var/lib/serried-new --rebuild-site",
        How::Not(SITES),
    ),
];
