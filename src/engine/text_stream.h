// Turns the bytes of tokens into pieces that may be sent: whole UTF-8
// characters, and nothing that could still become a stop string.
#ifndef EVERWARM_ENGINE_TEXT_STREAM_H_
#define EVERWARM_ENGINE_TEXT_STREAM_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace everwarm::engine {

// Threads: one at a time.
class TextStream {
 public:
  // Empty stop strings are ignored.
  explicit TextStream(std::vector<std::string> stops);

  // Adds a token's bytes and returns what may be sent now, perhaps nothing.
  // When a stop string is complete, the text before its first occurrence is
  // returned and stopped() is true from then on.
  std::string Add(std::string_view bytes);
  bool stopped() const { return stopped_; }
  // The one that was complete, the longest of several; empty before.
  const std::string& stop() const { return stop_; }
  // How many of the bytes that were added are in the texts returned so far.
  size_t sent_bytes() const { return sent_bytes_; }

  // The end has come without a stop string: what was held back. Bytes of an
  // incomplete character become U+FFFD.
  std::string Finish();

 private:
  // Bytes at the end of held_ that may be the beginning of a stop string.
  size_t PossibleStopBytes() const;

  std::vector<std::string> stops_;
  std::string held_;
  size_t sent_bytes_ = 0;
  bool stopped_ = false;
  std::string stop_;
};

// `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD. An
// incomplete sequence at the end is left out and its length returned in
// `incomplete` unless that is null, in which case it is replaced too.
std::string ValidUtf8(std::string_view text, size_t* incomplete);

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_TEXT_STREAM_H_
