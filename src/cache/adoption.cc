#include "cache/adoption.h"

#include <algorithm>
#include <utility>

namespace everwarm::cache {
namespace {

// About 400 bytes each.
constexpr size_t kMaxWaiting = 65536;

}  // namespace

void Adoption::Adopt(std::vector<TierEntry> entries) {
  // Parents first; what is left over has none here.
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TierEntry& a, const TierEntry& b) {
                     return a.identity.start < b.identity.start;
                   });
  size_t ignored = 0;
  for (TierEntry& entry : entries) {
    if (!MakesSense(entry.identity)) {
      ++ignored;
      continue;
    }
    Node* const parent = FindParent(entry.identity);
    if (parent != nullptr) {
      Attach(entry.identity, parent);
    } else {
      Wait(std::move(entry.identity));
    }
  }
  if (ignored > 0) {
    parts_.logger->warn("{} of {} stored blocks make no sense and are ignored",
                        ignored, entries.size());
  }
}

bool Adoption::MakesSense(const BlockIdentity& identity) const {
  const uint32_t block_tokens = parts_.layout.block_tokens;
  const size_t group = identity.key.group;
  return group < parts_.layout.groups.size() && !identity.tokens.empty() &&
         identity.tokens.size() <= block_tokens &&
         std::all_of(identity.tokens.begin(), identity.tokens.end(),
                     [](TokenId token) { return token >= 0; }) &&
         identity.start % block_tokens == 0 &&
         (identity.start == 0) == (identity.parent == identity.root) &&
         ChildId(identity.parent, identity.tokens) == identity.key.node;
}

Node* Adoption::FindParent(const BlockIdentity& identity) const {
  if (identity.start == 0) {
    return tree_.FindOrAddRoot(identity.root);
  }
  // A parent with anything durable is known by the id of a full span.
  for (size_t g = 0; g < parts_.layout.groups.size(); ++g) {
    const Residency* const residency =
        copies_.Find({identity.parent, static_cast<GroupIndex>(g)});
    if (residency == nullptr) {
      continue;
    }
    Node* const node = residency->node;
    const bool fits = residency->tier_tokens == tree_.block_tokens() &&
                      *node->root->id == identity.root &&
                      node->start + tree_.block_tokens() == identity.start;
    return fits ? node : nullptr;
  }
  return nullptr;
}

void Adoption::Attach(const BlockIdentity& identity, Node* parent) {
  std::vector<std::pair<BlockIdentity, Node*>> open = {{identity, parent}};
  while (!open.empty()) {
    const auto [entry, under] = std::move(open.back());
    open.pop_back();
    const uint32_t tokens = static_cast<uint32_t>(entry.tokens.size());
    Node* const node = tree_.FindOrAdd(under, entry.tokens);
    if (copies_.Find(entry.key) == nullptr) {
      const GroupIndex group = entry.key.group;
      const bool state =
          parts_.layout.groups[group].kind == GroupKind::kRecurrent;
      copies_.Add(state ? tree_.FindOrAddState(node, group, tokens)
                        : node->groups[group],
                  tokens);
    }
    const auto waiting = waiting_.find(entry.key.node);
    if (tokens != tree_.block_tokens() || waiting == waiting_.end()) {
      continue;
    }
    for (BlockIdentity& child : waiting->second) {
      parents_.erase(child.key);
      if (child.root == *node->root->id &&
          child.start == node->start + tokens) {
        open.emplace_back(std::move(child), node);
      }
    }
    waiting_.erase(waiting);
  }
}

void Adoption::OnDurable(const BlockKey& key) {
  if (waiting_.empty() || !waiting_.contains(key.node)) {
    return;
  }
  Residency* const residency = copies_.Find(key);
  if (residency == nullptr || residency->tier_tokens != tree_.block_tokens()) {
    return;
  }
  std::vector<BlockIdentity> children = std::move(waiting_[key.node]);
  waiting_.erase(key.node);
  for (const BlockIdentity& child : children) {
    parents_.erase(child.key);
    if (FindParent(child) == residency->node) {
      Attach(child, residency->node);
    }
  }
}

void Adoption::Wait(BlockIdentity identity) {
  if (parents_.size() >= kMaxWaiting ||
      !parents_.emplace(identity.key, identity.parent).second) {
    return;
  }
  std::vector<BlockIdentity>& siblings = waiting_[identity.parent];
  siblings.push_back(std::move(identity));
}

bool Adoption::Claim(const BlockIdentity& identity, Residency& residency) {
  const auto found = parents_.find(identity.key);
  if (found == parents_.end() || found->second != identity.parent) {
    return false;
  }
  Forget(identity.key);
  copies_.Add(residency, static_cast<uint32_t>(identity.tokens.size()));
  OnDurable(identity.key);
  return true;
}

void Adoption::Forget(const BlockKey& key) {
  const auto found = parents_.find(key);
  if (found == parents_.end()) {
    return;
  }
  const auto siblings = waiting_.find(found->second);
  std::erase_if(siblings->second, [&](const BlockIdentity& identity) {
    return identity.key == key;
  });
  if (siblings->second.empty()) {
    waiting_.erase(siblings);
  }
  parents_.erase(found);
}

}  // namespace everwarm::cache
