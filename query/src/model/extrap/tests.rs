//! Lines as Extra-P reads them, and reports as it prints them.

use super::*;

fn line(name: &str) -> String {
    serde_json::to_string(&ExtrapPoint::new(name, 4.0, 9.5)).unwrap()
}

#[test]
fn a_point_has_its_levels_as_a_path_and_says_what_is_counted() {
    let plain = r#"{"params":{"size":4.0},"metric":"various","callpath":"scale_counter","value":9.5}"#;
    assert_eq!(line("scale_counter"), plain);
    let hits = r#"{"params":{"size":4.0},"metric":"hits","callpath":"mpi->hits->mpi_send","value":9.5}"#;
    assert_eq!(line("mpi___hits___mpi_send"), hits);
    assert!(line("total___mpi___hits___total").contains(r#""metric":"various","callpath":"total->mpi->hits->total""#));
    assert!(line("mpi___hits").contains(r#""metric":"various""#), "it has two levels");
}

#[test]
fn a_report_gives_the_models_that_are_in_it() {
    let report = "Callpath: mpi->time->mpi_send\n\tMetric: time\n\t\tModel: 1.5 + 2 * log2(size)\n\t\tRSS: 0.25\n\
                  \t\tAdjusted R^2: 1.0\nCallpath: a\n\tMetric: various\n\t\tModel: None\n\t\tRSS: 0\n\
                  Callpath: b\n\tMetric: various\n\t\tModel: 2 $ 3\n\t\tRSS: 1e-3\nCallpath: cut\n\t\tModel: 5\n";
    let models = models(report);
    assert_eq!(models.len(), 2, "{models:?}");
    assert_eq!((&*models[0].name, models[0].rss), ("mpi___time___mpi_send", 0.25));
    assert_eq!(models[0].formula.as_ref().unwrap().at(8.0), 7.5);
    assert_eq!((&*models[1].name, models[1].rss), ("b", 0.001));
    let why = models[1].formula.as_ref().unwrap_err().to_string();
    assert_eq!(why, "column 3 of the formula: expected an operator, ) or the end, found '$ 3'");
    assert_eq!(super::models("Traceback (most recent call last):\n  RSS: 1\nModel: 3\nRSS: x"), []);
}
