#![allow(missing_docs, unused, dead_code)]
pub mod timeline {
    use taillab_model::*; use taillab_analysis::Matched;
    pub struct Timeline; impl Timeline { pub fn has_disturbances(&self)->bool{false} }
    pub struct TimelineBuilder; impl TimelineBuilder { pub fn new(_:&RecordingContext)->Self{Self} pub fn observe(&mut self,_:&Event){} pub fn finish(self)->Timeline{Timeline} }
    pub struct BusyTime{pub per_request:Nanos}
    pub fn busy_service_time(_:&Matched,_:&Timeline,_:Monotonic)->Option<BusyTime>{None}
}
pub mod ex { use std::num::NonZeroU32; use taillab_model::*; use taillab_model::explanation::*; use taillab_analysis::Matched; use super::timeline::Timeline;
pub struct ExplainOptions { pub service_time: Nanos, pub workers: NonZeroU32, pub measure_from: Monotonic, pub slowest: usize }
pub struct Explained { pub causes: Vec<CauseShare>, pub model_fit: Option<ModelFit>, pub predictions: Vec<Prediction>, pub explanation: Explanation }
pub fn explain(_: &Matched, _: &Timeline, _: &RecordingContext, _: &ExplainOptions) -> Explained { Explained{causes:vec![],model_fit:None,predictions:vec![],explanation:Explanation::default()} } }
pub mod report {
    use taillab_model::summary::*; use taillab_model::explanation::*; use taillab_report::Curve;
    pub struct TraceReport<'a> { pub summary: &'a TraceSummary, pub environment: Option<&'a serde_json::Value>, pub curves: &'a [Curve] }
    pub mod html { pub fn render_trace(_: &super::TraceReport<'_>) -> Vec<u8> { vec![] } }
    pub mod json { pub fn pretty<T: serde::Serialize>(t:&T)->Result<Vec<u8>,serde_json::Error>{serde_json::to_vec_pretty(t)} }
    pub mod perfetto { pub fn trace(_:&str,_:&[taillab_model::explanation::SlowRequest])->Vec<u8>{vec![]} }
    pub mod terminal { pub use taillab_report::terminal::{Style,Detail}; pub fn render_trace(r:&super::TraceReport<'_>,_:Option<&str>,_:Detail,_:Style)->String{
        let s=&r.summary; let m=&s.result.matching;
        format!("{} rate {:.0} t {} ({:?}) workers {} util {:.3}\n p50 {:?} p99 {:?} p999 {:?}\n stages {} {} {} {} {}\n{:?}\n{:?}\n{:#?}\n",s.target,s.arrival_rate_per_s,s.result.service_time_ns,s.result.service_time_source,s.result.ideal.workers,s.result.ideal.utilization,s.result.measured.sojourn.quantile(0.5),s.result.measured.sojourn.quantile(0.99),s.result.measured.sojourn.quantile(0.999),
        s.result.stages.t1_t2.mean,s.result.stages.t2_t3.mean,s.result.stages.t3_t4.mean,s.result.stages.t4_t5.mean,s.result.stages.t5_t6.mean,Matching{hooks:vec![],..m.clone()},s.observer,s.verdict) }
        pub fn slowest(_:&[taillab_model::explanation::SlowRequest],_:Style)->String{String::new()} }
    pub mod live { use taillab_model::*; use taillab_model::summary::*; use taillab_model::explanation::*; use super::terminal::Style;
      pub struct Screen { pub target: String, pub elapsed: Nanos, pub total: Option<Nanos>, pub last: Moment, pub whole: Moment, pub p99_history: Vec<Option<Nanos>>, pub observer: Option<Observer>, pub note: Option<String> }
      impl Screen { pub fn lines(&self,_:Style,_:usize)->Vec<String>{vec![format!("{} {} {:?} {:?} {:?}",self.target,self.last.rate_per_s,self.last.p50,self.whole.p99,self.note)]} }
      pub struct Moment { pub rate_per_s: f64, pub p50: Option<Nanos>, pub p99: Option<Nanos>, pub p999: Option<Nanos>, pub mean_stages_ns: Option<[f64; 5]>, pub matching: Matching, pub causes: Vec<CauseShare> }
      impl Moment { pub fn of(r:&ServerResult,rate_per_s:f64)->Moment{Moment{rate_per_s,p50:r.measured.sojourn.quantile(0.5),p99:r.measured.sojourn.quantile(0.99),p999:None,mean_stages_ns:None,matching:r.matching.clone(),causes:vec![]}} } }
}
pub mod probe {
    pub use taillab_probe::{Probe,ServerProcesses,Transport};
    #[derive(Clone,Copy,Debug,PartialEq)] pub struct Disturbances; impl std::str::FromStr for Disturbances{type Err=String; fn from_str(s:&str)->Result<Self,String>{ if s=="noise" {Err("no".into())} else {Ok(Self)}}}
    pub struct Devices(pub u64); impl Devices{pub fn all_in(i:u64)->Self{Self(i)}}
    pub struct ProbeSpec{pub devices:Devices,pub transport:Transport,pub server_port:u16,pub server:ServerProcesses,pub server_cpus:Vec<u16>,pub disturbances:Disturbances,pub payload_bytes:u16,pub ring_bytes_per_cpu:usize}
    pub trait Threads { fn threads(&self)->Vec<taillab_model::ThreadName>{vec![]} } impl Threads for Probe {}
    pub fn load(s:&ProbeSpec)->Result<Probe,taillab_probe::ProbeError>{ Probe::load(&taillab_probe::ProbeSpec{device:taillab_probe::DeviceId{ifindex:std::env::var("IFI").map_or(1,|i|i.parse().unwrap()),netns_inode:s.devices.0},transport:s.transport,server_port:s.server_port,server:s.server.clone(),server_cpus:s.server_cpus.clone(),ring_bytes_per_cpu:s.ring_bytes_per_cpu}) }
}
