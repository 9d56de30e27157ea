//! A cluster's address as text.

use serried_wire::TransportOptions;

use crate::client::ConnectOptions;
use crate::error::ConnectError;

const SCHEME: &str = "serried://";

/// Reads `serried://host:port,host:port?cluster=name&site=name&home=number&poll_us=number`, or the addresses alone.
pub(crate) fn parse(given: &str) -> Result<ConnectOptions, ConnectError> {
    let fail = |reason: &str| ConnectError::Address {
        given: given.to_string(),
        reason: reason.to_string(),
    };
    let rest = given.trim();
    let rest = rest.strip_prefix(SCHEME).unwrap_or(rest);
    if rest.contains("://") {
        return Err(fail("it is not of the scheme `serried`"));
    }
    let (addresses, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let addresses = addresses.strip_suffix('/').unwrap_or(addresses);
    let addresses: Vec<&str> = addresses.split(',').map(str::trim).collect();
    for address in &addresses {
        let Some((host, port)) = address.rsplit_once(':') else {
            return Err(fail("an address has no port"));
        };
        if host.is_empty() {
            return Err(fail("an address has no host"));
        }
        if port.parse::<u16>().is_err() {
            return Err(fail("a port is not a number up to 65535"));
        }
    }
    let mut options = ConnectOptions::new(addresses);
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("site", site)) => options.site = Some(site.to_string()),
            Some(("cluster", cluster)) => options.cluster = Some(cluster.to_string()),
            Some(("home", home)) => match home.parse() {
                Ok(home) => options.home = Some(home),
                Err(_) => return Err(fail("`home=` wants the number of a site, from 0")),
            },
            Some(("poll_us", poll_us)) => match poll_us.parse() {
                Ok(poll_us) if poll_us <= TransportOptions::MOST_POLL_US => {
                    options.transport.poll_us = poll_us;
                }
                _ => {
                    let most = TransportOptions::MOST_POLL_US;
                    return Err(fail(&format!("`poll_us=` wants microseconds, at most {most}")));
                }
            },
            _ => {
                return Err(fail(
                    "its parameters may be `site=`, `home=`, `cluster=` and `poll_us=`",
                ));
            }
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_stand_with_and_without_the_scheme() {
        let options = parse("serried://127.0.0.1:7400,[::1]:7401, host:7402/").unwrap();
        assert_eq!(options.addresses, ["127.0.0.1:7400", "[::1]:7401", "host:7402"]);
        assert_eq!(parse("a:1").unwrap(), parse("serried://a:1").unwrap());
    }

    #[test]
    fn parameters_name_the_site_and_the_cluster() {
        let options = parse("serried://a:1?site=zone-1&cluster=bank").unwrap();
        assert_eq!(options.site.as_deref(), Some("zone-1"));
        assert_eq!(options.cluster.as_deref(), Some("bank"));
        assert_eq!((options.home, parse("a:1?home=2").unwrap().home), (None, Some(2)));
        let polls = |url| parse(url).unwrap().transport.poll_us;
        assert_eq!((polls("a:1"), polls("a:1?poll_us=150")), (0, 150));
        assert_eq!(polls("a:1?poll_us=10000"), TransportOptions::MOST_POLL_US);
    }

    #[test]
    fn what_is_wrong_is_said_with_how_it_should_be() {
        let wrong = [
            ("", "no port"),
            ("a", "no port"),
            (":1", "no host"),
            ("a:70000", "not a number"),
            ("http://a:1", "scheme"),
            ("a:1?sight=x", "parameters"),
            ("a:1?home=moon", "the number of a site"),
            ("a:1?poll_us=1ms", "microseconds"),
            ("a:1?poll_us=10001", "at most 10000"),
        ];
        for (given, reason) in wrong {
            let message = parse(given).unwrap_err().to_string();
            assert!(message.contains(reason), "{given}: {message}");
            assert!(message.ends_with("write serried://host:port,host:port"), "{message}");
        }
    }
}
