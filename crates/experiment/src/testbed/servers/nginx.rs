//! nginx as Debian installs it, with one static file.

use std::ffi::OsString;
use std::net::SocketAddr;

use taillab_console::exit::Failure;
use taillab_console::fail::host;
use taillab_host::{PrivateFolder, User};
use taillab_model::summary::Connect;

use crate::definition::Experiment;

/// Size of its folder in bytes: page, configuration and PID file.
const FOLDER_BYTES: u64 = 1 << 20;
/// The largest response in bytes: its page must fit into the folder.
const MOST_BYTES: u32 = 512 << 10;
/// The subfolder that nginx may write to, for its PID file and temporary files.
const SCRATCH: &str = "scratch";
/// The name of its configuration file.
const CONFIGURATION: &str = "nginx.conf";
/// Names that the page cannot have.
const OURS: [&str; 4] = [SCRATCH, CONFIGURATION, ".", ".."];

/// The arguments. Configuration and page are in the working directory under short relative names, so that
/// opening the page costs no more than it does in `/var/www/html`. Errors go to stderr from the start.
pub fn args() -> Vec<OsString> {
    ["-p", "./", "-c", CONFIGURATION, "-e", "stderr"]
        .map(OsString::from)
        .into()
}

/// The name and the length of the page that it serves.
///
/// # Errors
/// A usage failure if nginx cannot serve such a page.
pub fn page(experiment: &Experiment) -> Result<(&str, u32), Failure> {
    let workload = &experiment.workload;
    let bytes = workload.response_bytes.unwrap_or_default();
    let connect = experiment.client.connect;
    let page = page_bytes(bytes, connect).ok_or_else(|| {
        let least = response_header(1, connect).len() as u32 + 1;
        Failure::usage(format!(
            "workload.response_bytes: nginx cannot answer with exactly {bytes} bytes: choose \
                 another length from {least} to {MOST_BYTES}"
        ))
    })?;
    let path = workload.path.as_deref().unwrap_or_default();
    let name = path.trim_start_matches('/');
    if name.is_empty() || name.contains(['/', '%', '?', '#']) || OURS.contains(&name) {
        return Err(Failure::usage(
            "workload.path: nginx serves one file: write / and its name, e.g. /index.html",
        ));
    }
    Ok((name, page))
}

/// Makes nginx's working directory, with its page and configuration.
pub fn folder(
    experiment: &Experiment,
    address: SocketAddr,
    user: &User,
) -> Result<PrivateFolder, Failure> {
    let (name, page) = page(experiment)?;
    let folder = PrivateFolder::new(FOLDER_BYTES).map_err(host)?;
    folder.make_folder(SCRATCH, user).map_err(host)?;
    let conf = configuration(experiment, address);
    for (name, content) in [
        (CONFIGURATION, conf.into_bytes()),
        (name, content(page as usize)),
    ] {
        folder.write(name, &content).map_err(host)?;
    }
    Ok(folder)
}

/// Debian's own configuration as far as it affects requests, but without an access log and with
/// connections that stay open.
fn configuration(experiment: &Experiment, address: SocketAddr) -> String {
    let workers = experiment.workers();
    // nginx closes idle connections when fewer than a sixteenth of these are left
    let connections = 2 * experiment.client.all_connections() + 64;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("    {what}_temp_path {SCRATCH}/{what};\n"))
        .collect();
    format!(
        "daemon off;
worker_processes {workers};
pid {SCRATCH}/nginx.pid;
error_log stderr warn;
events {{
    worker_connections {connections};
}}
http {{
    access_log off;
    default_type text/html;
    sendfile on;
    tcp_nopush on;
    server_tokens off;
    keepalive_timeout 1d;
    keepalive_requests 1000000000;
{temporary}    server {{
        listen {address} backlog=16384;
        root ./;
    }}
}}
"
    )
}

/// A page of `bytes` bytes.
fn content(bytes: usize) -> Vec<u8> {
    const LINE: &[u8] = b"<p>taillab measures how long this page takes.</p>\n";
    LINE.iter().copied().cycle().take(bytes).collect()
}

/// Length of the page whose response is `response` bytes long; `None` if there is none. The header contains
/// the page's length twice, so a few response lengths are impossible.
fn page_bytes(response: u32, connect: Connect) -> Option<u32> {
    let least = response_header(1, connect).len() as u32;
    if response > MOST_BYTES {
        return None;
    }
    (1..=response.checked_sub(least)?)
        .rev()
        .take(16)
        .find(|page| response_header(*page, connect).len() as u32 + page == response)
}

/// The header of nginx's response. Its length does not depend on the dates: in the ETag, times until 2106
/// have eight hexadecimal digits.
fn response_header(page: u32, connect: Connect) -> String {
    let connection = match connect {
        Connect::Once => "keep-alive",
        Connect::Each => "close",
    };
    const DATE: &str = "Sat, 21 Nov 2026 00:00:00 GMT";
    format!(
        "HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: {DATE}\r\nContent-Type: text/html\r\n\
         Content-Length: {page}\r\nLast-Modified: {DATE}\r\nConnection: {connection}\r\n\
         ETag: \"6740a1b2-{page:x}\"\r\nAccept-Ranges: bytes\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_fills_the_response_up() {
        for (response, connect) in [228, 300, 849, 4096, 100_000]
            .into_iter()
            .flat_map(|response| [(response, Connect::Once), (response, Connect::Each)])
        {
            let page = page_bytes(response, connect).unwrap();
            assert_eq!(response_header(page, connect).len() as u32 + page, response);
            assert_eq!(content(page as usize).len() as u32, page);
        }
        // the paper's 849 bytes
        assert_eq!(page_bytes(849, Connect::Once), Some(618));
        assert_eq!(page_bytes(100, Connect::Once), None);
        assert_eq!(page_bytes(MOST_BYTES + 1, Connect::Once), None);
        // an extra digit in the header makes a few lengths impossible
        let impossible = (228..2000).filter(|bytes| page_bytes(*bytes, Connect::Once).is_none());
        assert!(impossible.count() < 10);
    }
}
