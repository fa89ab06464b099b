//! `.hgrm`: the percentile distribution of an HdrHistogram as text.
//!
//! The format of `HdrHistogram.outputPercentileDistribution`, which wrk2 prints with
//! `--latency` and the plotters of HdrHistogram read: value, percentile, count up to it and
//! 1/(1 − percentile), then a footer of comments. Values are in milliseconds, the unit that
//! wrk2 prints and that the plotters label their axis with by default.

use hdrhistogram::Histogram;

/// Lines for each halving of the distance to 100 %, as in the files of the format's own tools.
const TICKS_PER_HALF_DISTANCE: u32 = 5;
const NS_PER_MS: f64 = 1e6;

/// The file of a histogram of nanoseconds, up to the first percentile that is not known, given as its probability.
pub(crate) fn percentiles(histogram: &Histogram<u64>, is_known: impl Fn(f64) -> bool) -> Vec<u8> {
    let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let mut count = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        let q = step.quantile_iterated_to();
        if !is_known(q) {
            break;
        }
        let value = step.value_iterated_to() as f64 / NS_PER_MS;
        count += step.count_since_last_iteration();
        // six decimals: a nanosecond in milliseconds
        let mut line = format!("{value:12.6} {q:14.12} {count:10}");
        if q < 1.0 {
            line.push_str(&format!(" {:14.2}", 1.0 / (1.0 - q)));
        }
        text.push_str(&line);
        text.push('\n');
    }
    let max = match is_known(1.0) {
        true => format!("{:12.6}", histogram.max() as f64 / NS_PER_MS),
        false => format!("{:>12}", "not known"),
    };
    text.push_str(&format!(
        "#[Mean    = {:12.6}, StdDeviation   = {:12.6}]\n\
         #[Max     = {max}, Total count    = {:12}]\n\
         #[Buckets = {:12}, SubBuckets     = {:12}]\n\
         #[Unit    = milliseconds]\n",
        histogram.mean() / NS_PER_MS,
        histogram.stdev() / NS_PER_MS,
        histogram.len(),
        histogram.buckets(),
        // twice the values that this number of digits can distinguish, as a power of two
        (2 * 10_u64.pow(u32::from(histogram.sigfig()))).next_power_of_two(),
    ));
    text.into_bytes()
}
