#include "engine/text_stream.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace everwarm::engine {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What a UTF-8 sequence may be, by its first byte; Unicode 15, table 3-7.
struct Sequence {
  size_t length = 0;  // 0: not a first byte
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

Sequence SequenceOf(uint8_t first) {
  if (first < 0x80) return {1};
  if (first < 0xC2) return {};
  if (first < 0xE0) return {2};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first < 0xF4) return {4};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

// Bytes at the start of `text` that agree with a sequence; `wanted` says how
// many it would have.
size_t GoodBytes(std::string_view text, size_t* wanted) {
  const Sequence sequence = SequenceOf(static_cast<uint8_t>(text[0]));
  *wanted = sequence.length;
  if (sequence.length == 0) {
    return 0;
  }
  size_t good = 1;
  while (good < sequence.length && good < text.size()) {
    const auto byte = static_cast<uint8_t>(text[good]);
    const uint8_t low = good == 1 ? sequence.second_low : 0x80;
    const uint8_t high = good == 1 ? sequence.second_high : 0xBF;
    if (byte < low || byte > high) {
      break;
    }
    ++good;
  }
  return good;
}

}  // namespace

std::string ValidUtf8(std::string_view text, size_t* incomplete) {
  std::string valid;
  valid.reserve(text.size());
  if (incomplete != nullptr) {
    *incomplete = 0;
  }
  size_t at = 0;
  while (at < text.size()) {
    size_t wanted = 0;
    const size_t good = GoodBytes(text.substr(at), &wanted);
    if (wanted != 0 && good == wanted) {
      valid.append(text.substr(at, good));
      at += good;
      continue;
    }
    if (incomplete != nullptr && good > 0 && at + good == text.size()) {
      *incomplete = good;
      return valid;
    }
    valid.append(kReplacement);
    at += std::max<size_t>(good, 1);
  }
  return valid;
}

TextStream::TextStream(std::vector<std::string> stops)
    : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string TextStream::Add(std::string_view bytes) {
  if (stopped_) {
    return "";
  }
  held_.append(bytes);
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t found = held_.find(stop);
    if (found == std::string::npos) {
      continue;
    }
    if (found < first || (found == first && stop.size() > stop_.size())) {
      first = found;
      stop_ = stop;
    }
  }
  if (first != std::string::npos) {
    stopped_ = true;
    sent_bytes_ += first;
    std::string text =
        ValidUtf8(std::string_view(held_).substr(0, first), nullptr);
    held_.clear();
    return text;
  }
  const size_t sendable = held_.size() - PossibleStopBytes();
  size_t incomplete = 0;
  std::string text =
      ValidUtf8(std::string_view(held_).substr(0, sendable), &incomplete);
  held_.erase(0, sendable - incomplete);
  sent_bytes_ += sendable - incomplete;
  return text;
}

std::string TextStream::Finish() {
  std::string text = stopped_ ? "" : ValidUtf8(held_, nullptr);
  sent_bytes_ += held_.size();
  held_.clear();
  return text;
}

size_t TextStream::PossibleStopBytes() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    size_t length = std::min(stop.size() - 1, held_.size());
    for (; length > longest; --length) {
      if (std::string_view(held_).ends_with(
              std::string_view(stop).substr(0, length))) {
        longest = length;
        break;
      }
    }
  }
  return longest;
}

}  // namespace everwarm::engine
