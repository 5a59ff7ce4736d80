// Which tokens a conversation's text was made of.
//
// A model's reply comes back as text, and the tokenizer may cut that text into
// other tokens than were generated; their KV would then be of no use. So the
// tokens of recent conversations are remembered, and used again where a text
// begins with exactly theirs. A hint and no more: what is in the cache is still
// found by its tokens alone.
//
// Threads: Remember() from the engine's, which it never keeps waiting; Find()
//          from any.
// Bounds:  entries, and bytes of text; the least recently used go first.
#ifndef EVERWARM_ENGINE_TOKEN_HISTORY_H_
#define EVERWARM_ENGINE_TOKEN_HISTORY_H_

#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace everwarm::engine {

class TokenHistory {
 public:
  // A token's bytes, also those of control tokens. From any thread.
  using PieceOf = std::function<std::string(TokenId)>;
  struct Limits {
    size_t max_entries = 64;
    size_t max_text_bytes = size_t{8} << 20;
  };
  TokenHistory(const Fingerprint& fingerprint, PieceOf piece_of, Limits limits)
      : fingerprint_(fingerprint),
        piece_of_(std::move(piece_of)),
        limits_(limits) {}

  // A conversation up to the end of a reply; what of it ends inside a character
  // is left out.
  void Remember(std::string_view name_space, std::vector<TokenId> tokens);
  // The same for one that is known by its root.
  void Remember(const NodeId& root, std::vector<TokenId> tokens);

  struct Known {
    std::vector<TokenId> tokens;
    // Bytes of the text that they are.
    size_t bytes = 0;
  };
  // The longest conversation of the namespace that the text begins with; or
  // the beginning of one, where that is the whole text, as when a reply is to
  // be made anew. `unwritten` tokens begin every prompt without being part of
  // its text.
  std::optional<Known> Find(std::string_view name_space, std::string_view text,
                            absl::Span<const TokenId> unwritten);

  std::string TextOf(absl::Span<const TokenId> tokens) const;

 private:
  struct Entry {
    NodeId root;
    std::vector<TokenId> tokens;
    std::string text;
  };
  // The entry's tokens that the text begins with, as Find() says; 0 if none.
  size_t Matching(const Entry& entry, std::string_view text,
                  size_t hidden) const;
  // Takes over what was remembered since.
  void TakeNew() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Add(Entry entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Fingerprint fingerprint_;
  const PieceOf piece_of_;
  const Limits limits_;

  // Before new_mutex_.
  Mutex mutex_;
  // Most recently used first.
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  size_t text_bytes_ ABSL_GUARDED_BY(mutex_) = 0;

  // Held for moments only.
  Mutex new_mutex_;
  // Without text yet; oldest first.
  std::list<Entry> new_ ABSL_GUARDED_BY(new_mutex_);
};

}  // namespace everwarm::engine

#endif  // EVERWARM_ENGINE_TOKEN_HISTORY_H_
