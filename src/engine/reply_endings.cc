#include "engine/reply_endings.h"

#include <utility>

namespace everwarm::engine {

void ReplyEndings::Add(Ending ending) {
  ending.deadline = clock_.Now() + ending.wait_durable;
  if (!SendIfDue(ending)) {
    waiting_.push_back(std::move(ending));
  }
}

void ReplyEndings::Settle() {
  std::erase_if(waiting_, [this](Ending& ending) {
    return ending.channel->cancelled() || SendIfDue(ending);
  });
}

void ReplyEndings::SendAll() {
  for (Ending& ending : waiting_) {
    Send(ending, cache_.DurabilityOf(ending.tokens, ending.name_space).tokens);
  }
  waiting_.clear();
}

bool ReplyEndings::SendIfDue(Ending& ending) {
  const cache::PrefixDurability durability =
      cache_.DurabilityOf(ending.tokens, ending.name_space);
  if (durability.pending && durability.tokens < ending.tokens.size() &&
      clock_.Now() < ending.deadline) {
    return false;
  }
  Send(ending, durability.tokens);
  return true;
}

void ReplyEndings::Send(Ending& ending, TokenPos durable) {
  ending.event.usage.durable_tokens = durable;
  ending.channel->SendLast(std::move(ending.event));
}

}  // namespace everwarm::engine
