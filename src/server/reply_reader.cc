#include "server/reply_reader.h"

#include <optional>
#include <utility>

namespace everwarm::server {
namespace {

// Each look reads the whole text again, so that looks become rarer as it grows.
constexpr size_t kLookFraction = 128;

// Makes `so_far` the text `now` and returns what that adds; nothing if it is no
// continuation.
std::string Continue(std::string now, std::string& so_far) {
  if (now.size() <= so_far.size() ||
      now.compare(0, so_far.size(), so_far) != 0) {
    return std::string();
  }
  std::string added = now.substr(so_far.size());
  so_far = std::move(now);
  return added;
}

}  // namespace

ReplyDelta ReplyReader::Add(std::string_view text) {
  if (syntax_ == nullptr) {
    reply_.content += text;
    return {.content = std::string(text)};
  }
  text_ += text;
  if ((text_.size() - parsed_bytes_) * kLookFraction < text_.size()) {
    return {};
  }
  parsed_bytes_ = text_.size();
  std::optional<models::ParsedReply> parsed = syntax_->Parse(text_, true);
  return parsed ? Advance(*std::move(parsed), false) : ReplyDelta();
}

ReplyDelta ReplyReader::Finish() {
  if (syntax_ == nullptr) {
    return {};
  }
  std::optional<models::ParsedReply> parsed = syntax_->Parse(text_, false);
  if (parsed) {
    return Advance(*std::move(parsed), true);
  }
  if (reply_.reasoning.empty() && reply_.tool_calls.empty()) {
    // The model wrote something else than it should: then that is its answer.
    return {.content = Continue(text_, reply_.content)};
  }
  return {};
}

const models::ParsedReply& ReplyReader::ReadWhole(std::string_view text) {
  if (syntax_ == nullptr) {
    reply_.content += text;
  } else {
    text_ += text;
    Finish();
  }
  return reply_;
}

ReplyDelta ReplyReader::Advance(models::ParsedReply parsed, bool last) {
  ReplyDelta delta;
  delta.reasoning = Continue(std::move(parsed.reasoning), reply_.reasoning);
  delta.content = Continue(std::move(parsed.content), reply_.content);
  for (size_t i = 0; i < parsed.tool_calls.size(); ++i) {
    models::ToolCall& call = parsed.tool_calls[i];
    ReplyDelta::Call change;
    change.index = i;
    if (i >= reply_.tool_calls.size()) {
      const bool named =
          !call.name.empty() &&
          (last || !call.arguments.empty() || i + 1 < parsed.tool_calls.size());
      if (!named) {
        break;
      }
      change.id = call.id.empty() ? new_call_id_() : call.id;
      change.name = call.name;
      reply_.tool_calls.push_back({change.id, change.name, ""});
    }
    change.arguments =
        Continue(std::move(call.arguments), reply_.tool_calls[i].arguments);
    if (!change.name.empty() || !change.arguments.empty()) {
      delta.calls.push_back(std::move(change));
    }
  }
  return delta;
}

}  // namespace everwarm::server
