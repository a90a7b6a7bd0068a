//! The schema that the gRPC port tells.

use crate::ports::{connect, run};
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorProto};
use std::collections::BTreeMap;
use std::fmt::Debug;
use tollgate_service::proto::{
    CurrentLimit, Descriptor, DescriptorStatus, Entry, HeaderValue, LimitOverride, RateLimitRequest, RateLimitResponse,
    Span, UInt64Value,
};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ListServiceResponse, ServerReflectionRequest};

/// The fields of each message by its full name, as the names and the numbers in their order.
type Fields = BTreeMap<String, (Vec<String>, Vec<i32>)>;

/// A name and a number of each field, as this message has them. All its fields must be set, and none to its default.
fn fields(message: &(impl Message + Debug)) -> (Vec<String>, Vec<i32>) {
    let shown = format!("{message:#?}");
    let names = shown.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
    let names = names.filter(|(name, _)| !name.starts_with(' ')).map(|(name, _)| name.to_owned());
    let (bytes, mut numbers) = (message.encode_to_vec(), Vec::new());
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (number, wire_type) = prost::encoding::decode_key(&mut rest).unwrap();
        prost::encoding::skip_field(wire_type, number, &mut rest, Default::default()).unwrap();
        numbers.push(number as i32);
    }
    (names.collect(), numbers)
}

fn add_messages(prefix: &str, messages: &[DescriptorProto], fields: &mut Fields) {
    for message in messages {
        let name = format!("{prefix}.{}", message.name());
        let names = message.field.iter().map(|field| field.name().to_owned()).collect();
        let numbers = message.field.iter().map(|field| field.number()).collect();
        add_messages(&name, &message.nested_type, fields);
        fields.insert(name, (names, numbers));
    }
}

#[tokio::test]
async fn clients_can_ask_for_the_schema_of_what_the_service_reads_and_writes() {
    let running = run("domain: d\n").await;
    let mut client = ServerReflectionClient::new(connect(running.grpc).await);
    let mut ask = async |message_request| {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(message_request) };
        let answers = client.server_reflection_info(futures::stream::iter([request])).await.unwrap();
        answers.into_inner().message().await.unwrap().unwrap().message_response.unwrap()
    };
    let listed = ask(MessageRequest::ListServices(String::new())).await;
    let MessageResponse::ListServicesResponse(ListServiceResponse { service }) = listed else { panic!("{listed:?}") };
    let services: Vec<_> = service.iter().map(|service| &*service.name).collect();
    let own = "envoy.service.ratelimit.v3.RateLimitService";
    assert!(services.contains(&own) && services.contains(&"grpc.health.v1.Health"), "{services:?}");
    let mut known = Fields::new();
    for symbol in [
        own,
        "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor",
        "envoy.config.core.v3.HeaderValue",
        "google.protobuf.UInt64Value",
        "google.protobuf.Duration",
    ] {
        let found = ask(MessageRequest::FileContainingSymbol(symbol.to_owned())).await;
        let MessageResponse::FileDescriptorResponse(found) = found else { panic!("{symbol}: {found:?}") };
        for file in found.file_descriptor_proto {
            let file = FileDescriptorProto::decode(&*file).unwrap();
            add_messages(file.package(), &file.message_type, &mut known);
        }
    }
    let entry = Entry { key: "k".into(), value: "v".into() };
    let limit = LimitOverride { requests_per_unit: 1, unit: 1 };
    let hits = UInt64Value { value: 1 };
    let descriptor = Descriptor { entries: vec![entry.clone()], limit: Some(limit), hits_addend: Some(hits) };
    let request = RateLimitRequest { domain: "d".into(), descriptors: vec![descriptor.clone()], hits_addend: 1 };
    let current = CurrentLimit { requests_per_unit: 1, unit: 1, name: "n".into() };
    let span = Span { seconds: 1, nanos: 1 };
    let status = DescriptorStatus {
        code: 1,
        current_limit: Some(current.clone()),
        limit_remaining: 1,
        duration_until_reset: Some(span),
    };
    let header = HeaderValue { key: "k".into(), value: "v".into() };
    let response = RateLimitResponse {
        overall_code: 1,
        statuses: vec![status.clone()],
        response_headers_to_add: vec![header.clone()],
    };
    for (name, fields) in [
        ("envoy.service.ratelimit.v3.RateLimitRequest", fields(&request)),
        ("envoy.service.ratelimit.v3.RateLimitResponse", fields(&response)),
        ("envoy.service.ratelimit.v3.RateLimitResponse.RateLimit", fields(&current)),
        ("envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus", fields(&status)),
        ("envoy.extensions.common.ratelimit.v3.RateLimitDescriptor", fields(&descriptor)),
        ("envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry", fields(&entry)),
        ("envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride", fields(&limit)),
        ("envoy.config.core.v3.HeaderValue", fields(&header)),
        ("google.protobuf.UInt64Value", fields(&hits)),
        ("google.protobuf.Duration", fields(&span)),
    ] {
        assert_eq!(known.remove(name), Some(fields), "{name}");
    }
    known.retain(|name, _| name.starts_with("envoy."));
    assert!(known.is_empty(), "{known:?}");
}
