//! Which certificate a client is shown, and which clients trust it.

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::TlsAcceptor;

use super::*;

/// Speaks with a server that serves `served`, as one who trusts `trust` and asks for `host`; the protocol agreed on.
async fn speak(served: &Served, trust: &Trust, host: &str) -> io::Result<Vec<u8>> {
    let (client, server) = duplex(64 << 10);
    let acceptor = TlsAcceptor::from(served.config().unwrap().unwrap());
    let serving = tokio::spawn(async move {
        let mut stream = acceptor.accept(server).await?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await
    });
    let config = trust.config(&[b"h2"]).unwrap();
    let mut stream = connect(config, trust.name(host)?, client).await?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    assert_eq!(said, "hello");
    serving.await.unwrap()?;
    Ok(stream.get_ref().1.alpn_protocol().unwrap_or_default().to_vec())
}

fn made(name: &str) -> Certificate {
    Certificate::made([name.to_owned()]).unwrap()
}

fn in_file(certificate: &Certificate) -> (tempfile::NamedTempFile, Trust) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &certificate.chain).unwrap();
    let trust = Trust::File(file.path().to_path_buf());
    (file, trust)
}

#[tokio::test]
async fn processes_of_a_job_trust_its_certificate_whatever_the_host_is_called() {
    let job = made("n1");
    let served = Served { job: Some(job.clone()), own: None };
    for host in ["n1", "10.1.2.3", "[fd00::1]", "elsewhere.example"] {
        assert_eq!(speak(&served, &Trust::Job(job.chain.clone()), host).await.unwrap(), b"h2", "{host}");
    }
}

#[tokio::test]
async fn the_certificate_of_another_job_is_not_trusted() {
    let served = Served { job: Some(made("n1")), own: None };
    let error = speak(&served, &Trust::Job(made("n1").chain), "n1").await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_server_with_the_certificate_of_an_authority_is_refused_and_told_what_is_wrong() {
    let mut params = rcgen::CertificateParams::new(["telem.example".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let chain = params.self_signed(&key).unwrap().pem();
    let own = Certificate { chain, key: key.serialize_pem(), from: "a test".to_owned() };
    let (_file, trust) = in_file(&own);
    let error = speak(&Served { job: None, own: Some(own) }, &trust, "telem.example").await.unwrap_err();
    assert!(error.to_string().starts_with("its certificate is an authority's, not a server's"), "{error}");
}

#[tokio::test]
async fn who_trusts_a_file_is_shown_the_users_certificate_under_its_own_names_only() {
    let (job, own) = (made("n1"), made("telem.example"));
    let served = Served { job: Some(job.clone()), own: Some(own.clone()) };
    let (_file, trust) = in_file(&own);
    speak(&served, &trust, "telem.example").await.unwrap();
    speak(&served, &trust, "127.0.0.1").await.unwrap();
    assert!(speak(&served, &trust, "other.example").await.is_err());
    speak(&served, &Trust::Job(job.chain.clone()), "telem.example").await.unwrap();
}

#[test]
fn what_is_no_certificate_is_named() {
    let good = made("n1");
    let with = |chain: &str, key: &str| Certificate { chain: chain.into(), key: key.into(), from: "a.pem".into() };
    let other = made("n1");
    for (certificate, said) in [
        (with("", &good.key), "a.pem holds no certificate in PEM"),
        (with("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", &good.key), "a.pem holds no certificate"),
        (with(&good.chain, "nothing"), "a.pem holds no private key"),
        (with(&good.chain, &other.key), "the certificate of a.pem cannot be used"),
    ] {
        let error = Served { job: None, own: Some(certificate) }.config().unwrap_err().to_string();
        assert!(error.contains(said), "{said}: {error}");
    }
    let absent = Certificate::read(Path::new("/absent/a.pem"), Path::new("/absent/a.key")).unwrap_err().to_string();
    assert!(absent.contains("/absent/a.pem"), "{absent}");
    assert!(Served::default().config().unwrap().is_none());
}

#[test]
fn no_log_shows_a_key() {
    let certificate = made("n1");
    assert!(!format!("{certificate:?}").contains("PRIVATE"));
}
