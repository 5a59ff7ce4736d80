#include "server/api_error.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "server/json_text.h"

namespace everwarm::server {
namespace {

constexpr char kParamPayload[] = "everwarm/param";
constexpr char kCodePayload[] = "everwarm/code";
constexpr char kInvalidRequestType[] = "invalid_request_error";
constexpr char kServerErrorType[] = "server_error";

std::string Payload(const absl::Status& status, const char* name) {
  const auto payload = status.GetPayload(name);
  return payload ? std::string(*payload) : std::string();
}

const char* AnthropicType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return http_status >= 500 ? "api_error" : kInvalidRequestType;
  }
}

}  // namespace

absl::Status InvalidRequest(const std::string& message,
                            const std::string& param, const std::string& code) {
  absl::Status status = absl::InvalidArgumentError(message);
  if (!param.empty()) {
    status.SetPayload(kParamPayload, absl::Cord(param));
  }
  if (!code.empty()) {
    status.SetPayload(kCodePayload, absl::Cord(code));
  }
  return status;
}

absl::Status WithCode(absl::Status status, const std::string& code) {
  status.SetPayload(kCodePayload, absl::Cord(code));
  return status;
}

ApiError RefusalError(const absl::Status& status) {
  ApiError error;
  error.message = std::string(status.message());
  error.param = Payload(status, kParamPayload);
  error.code = Payload(status, kCodePayload);
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      error.http_status = 400;
      error.type = kInvalidRequestType;
      break;
    case absl::StatusCode::kResourceExhausted:
      error.http_status = 429;
      error.type = "rate_limit_error";
      error.retry_after_s = 1;
      if (error.code.empty()) {
        error.code = "queue_full";
      }
      break;
    case absl::StatusCode::kUnavailable:
      error.http_status = 503;
      error.type = kServerErrorType;
      error.retry_after_s = 1;
      if (error.code.empty()) {
        error.code = "unavailable";
      }
      break;
    default:
      error.http_status = 500;
      error.type = kServerErrorType;
      break;
  }
  return error;
}

ApiError ReplyFailureError(const absl::Status& status) {
  ApiError error;
  error.message =
      absl::StrCat("the reply could not be computed: ", status.message());
  error.type = kServerErrorType;
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    error.http_status = 503;
    error.code = "out_of_memory";
    error.retry_after_s = 1;
  } else {
    error.http_status = 500;
    error.code = "engine_error";
  }
  return error;
}

ApiError StoppingError() {
  ApiError error;
  error.http_status = 503;
  error.message = "the server stopped before the reply was complete";
  error.type = kServerErrorType;
  error.code = "stopping";
  error.retry_after_s = 1;
  return error;
}

ApiError HttpError(int http_status, std::string_view detail) {
  ApiError error;
  error.http_status = http_status;
  error.message = std::string(detail);
  error.type = http_status >= 500 ? kServerErrorType : kInvalidRequestType;
  switch (http_status) {
    case 401:
      error.code = "invalid_api_key";
      break;
    case 403:
      error.code = "forbidden";
      break;
    case 404:
      error.code = "not_found";
      break;
    case 405:
      error.code = "method_not_allowed";
      break;
    case 413:
      error.code = "body_too_large";
      break;
    default:
      break;
  }
  return error;
}

std::string ErrorBody(const ApiError& error) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  return DumpJson({{"error",
                    {{"message", error.message},
                     {"type", error.type},
                     {"param", or_null(error.param)},
                     {"code", or_null(error.code)}}}});
}

std::string AnthropicErrorBody(const ApiError& error) {
  return DumpJson({{"type", "error"},
                   {"error",
                    {{"type", AnthropicType(error.http_status)},
                     {"message", error.message}}}});
}

}  // namespace everwarm::server
