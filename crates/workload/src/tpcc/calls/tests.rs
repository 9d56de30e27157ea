//! TPC-C on one simulated replica.

use super::*;
use crate::InspectionError;
use crate::procedures::tests::run;
use serried_history::EventKind;
use serried_protocols::rehearsal::{Forgetting, Rehearsal};

fn tpcc() -> Arc<TpccCalls> {
    let parameters = ProcedureParameters { warehouses: Some(2), ..ProcedureParameters::default() };
    Arc::new(TpccCalls::scaled(&parameters, Scale::SMALL).unwrap())
}

#[test]
fn all_transactions_run_and_leave_a_consistent_database() {
    let (report, history, inspected) = run::<Rehearsal>(tpcc());
    let kinds: Vec<&str> = report.kinds.iter().map(|kind| &*kind.kind).collect();
    assert_eq!(kinds, ["delivery", "new_order", "order_status", "payment", "stock_level"]);
    assert_eq!((report.failed, report.rolled_back, report.last_error), (0, 0, None));
    let done = history.events.iter().filter(|event| event.kind == EventKind::Ok).count();
    assert!(done > 300, "{done}");
    let text = inspected.unwrap().unwrap();
    assert!(text.starts_with("TPC-C's consistency conditions hold of 2 warehouses, "), "{text}");
}

#[test]
fn one_warehouse_has_all_districts_and_all_stock() {
    let parameters = ProcedureParameters { districts: Some(20), ..ProcedureParameters::default() };
    let tpcc = Arc::new(TpccCalls::scaled(&parameters, Scale::SMALL).unwrap());
    let mut random = rand::SeedableRng::seed_from_u64(1);
    let mut districts = std::collections::BTreeSet::new();
    for client in 0..200 {
        let planned = tpcc.plan(client, &mut random);
        assert_eq!(planned.inputs[0], Datum::Int(1), "{planned:?}");
        districts.extend((planned.procedure == "new_order").then(|| planned.inputs[1].clone()));
    }
    assert_eq!(districts.len(), 20);
    let (report, _, inspected) = run::<Rehearsal>(tpcc);
    assert_eq!((report.failed, report.last_error), (0, None));
    let text = inspected.unwrap().unwrap();
    assert!(text.starts_with("TPC-C's consistency conditions hold of 20 districts, "), "{text}");
}

#[test]
fn districts_of_one_warehouse_and_several_warehouses_exclude_each_other() {
    let parameters = ProcedureParameters {
        warehouses: Some(2),
        districts: Some(20),
        ..ProcedureParameters::default()
    };
    assert!(TpccCalls::new(&parameters).unwrap_err().to_string().contains("choose one of both"));
}

#[test]
fn forgotten_writes_break_conditions() {
    let (_, _, inspected) = run::<Forgetting>(tpcc());
    let Err(InspectionError::Broken(text)) = inspected else { panic!("{inspected:?}") };
    assert!(text.contains("TPC-C: ") && text.contains("more"), "{text}");
}

#[test]
fn loads_are_calls_of_their_procedures() {
    let tpcc = tpcc();
    for i in 0..tpcc.loading.calls() {
        let PlannedCall { procedure, inputs, .. } = tpcc.load(i);
        let procedure = tpcc.loading.set().procedure(procedure).unwrap();
        serried_procedures::Call::new(procedure, inputs).unwrap();
    }
}
