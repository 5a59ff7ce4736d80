#include "cache/resume.h"

#include <algorithm>
#include <random>
#include <set>

#include "gtest/gtest.h"

namespace everwarm::cache {
namespace {

constexpr uint32_t kBlock = 16;

CacheLayout Layout(std::vector<LayerGroup> groups) {
  return {kBlock, std::move(groups)};
}
LayerGroup Full() { return {"full", GroupKind::kFull, 0, {}}; }
LayerGroup Window(uint32_t window) {
  return {"window", GroupKind::kWindow, window, {}};
}
LayerGroup Recurrent() { return {"state", GroupKind::kRecurrent, 0, {}}; }

class States final : public StatePositions {
 public:
  explicit States(std::vector<std::set<TokenPos>> by_group)
      : by_group_(std::move(by_group)) {}
  std::optional<TokenPos> LastIn(GroupIndex group, TokenPos first,
                                 TokenPos last) const override {
    const std::set<TokenPos>& positions = by_group_[group];
    auto after = positions.upper_bound(last);
    if (after == positions.begin() || *std::prev(after) < first) {
      return std::nullopt;
    }
    return *std::prev(after);
  }
  bool Has(GroupIndex group, TokenPos p) const {
    return by_group_[group].contains(p);
  }

 private:
  std::vector<std::set<TokenPos>> by_group_;
};

TokenPos Scan(const CacheLayout& layout,
              const std::vector<std::vector<uint32_t>>& spans,
              uint32_t last_tokens, const StatePositions& states = NoStates()) {
  ResumeScan scan(layout, states);
  for (size_t s = 0; s < spans.size(); ++s) {
    scan.Add(s + 1 == spans.size() ? last_tokens : kBlock, spans[s]);
  }
  return scan.resume_point();
}

TEST(ResumeTest, NothingKnownResumesAtTheStart) {
  EXPECT_EQ(Scan(Layout({Full()}), {}, 0), 0);
}

TEST(ResumeTest, FullGroupsResumeAnywhereUpToTheFirstHole) {
  const CacheLayout layout = Layout({Full()});
  EXPECT_EQ(Scan(layout, {{16}, {16}, {7}}, 7), 39);
  EXPECT_EQ(Scan(layout, {{16}, {5}, {16}}, 16), 21);
  EXPECT_EQ(Scan(layout, {{0}, {16}, {16}}, 16), 0);
}

TEST(ResumeTest, TheGroupWithLeastDecides) {
  EXPECT_EQ(Scan(Layout({Full(), Full()}), {{16, 16}, {12, 9}}, 16), 25);
}

TEST(ResumeTest, WindowGroupsNeedOnlyWhatTheNextPositionSees) {
  // Position 40 sees 21 to 40: nothing of the first span.
  const CacheLayout layout = Layout({Full(), Window(20)});
  EXPECT_EQ(Scan(layout, {{16, 0}, {16, 16}, {8, 8}}, 8), 40);
  // Position 34 would see 15.
  EXPECT_EQ(Scan(layout, {{16, 0}, {16, 16}, {2, 2}}, 2), 0);
  EXPECT_EQ(Scan(layout, {{16, 0}, {16, 16}, {3, 3}}, 3), 35);
}

TEST(ResumeTest, AHoleInAWindowIsOvercomeByGoingBackBeforeIt) {
  const CacheLayout layout = Layout({Full(), Window(20)});
  EXPECT_EQ(Scan(layout, {{16, 16}, {16, 4}, {16, 16}}, 16), 20);
}

TEST(ResumeTest, AWindowOfOnePositionNeedsNothing) {
  EXPECT_EQ(Scan(Layout({Window(1)}), {{0}, {0}}, 16), 32);
}

TEST(ResumeTest, RecurrentGroupsResumeAtTheirStatesOnly) {
  const CacheLayout layout = Layout({Full(), Recurrent()});
  const States states({{}, {5, 20, 37}});
  EXPECT_EQ(Scan(layout, {{16, 0}, {16, 0}, {4, 0}}, 4, states), 20);
  EXPECT_EQ(Scan(layout, {{16, 0}, {16, 0}, {5, 0}}, 5, states), 37);
  EXPECT_EQ(Scan(layout, {{16, 0}}, 4), 0);
}

TEST(ResumeTest, TwoRecurrentGroupsResumeWhereBothHaveAState) {
  const CacheLayout layout = Layout({Recurrent(), Recurrent()});
  const States states({{3, 9, 12}, {3, 8, 10}});
  EXPECT_EQ(Scan(layout, {{0, 0}}, 16, states), 3);
}

TEST(ResumeTest, NeededSpansAreThoseTheResumePointSees) {
  using Spans = std::pair<uint32_t, uint32_t>;
  EXPECT_EQ(NeededSpans(Full(), kBlock, 0), Spans(0, 0));
  EXPECT_EQ(NeededSpans(Full(), kBlock, 16), Spans(0, 1));
  EXPECT_EQ(NeededSpans(Full(), kBlock, 17), Spans(0, 2));
  EXPECT_EQ(NeededSpans(Window(20), kBlock, 35), Spans(1, 3));
  EXPECT_EQ(NeededSpans(Window(20), kBlock, 34), Spans(0, 3));
  EXPECT_EQ(NeededSpans(Window(1), kBlock, 34), Spans(0, 0));
  EXPECT_EQ(NeededSpans(Recurrent(), kBlock, 34), Spans(0, 0));
}

TEST(ResumeTest, BlocksBehindAreEnoughToGoOnAndBoundedByTheWindow) {
  for (uint32_t window = 1; window < 120; ++window) {
    const LayerGroup group = Window(window);
    const uint32_t behind = BlocksBehind(group, kBlock);
    EXPECT_LT(behind * kBlock, window + kBlock);
    const uint32_t fills = 20;
    for (TokenPos p = fills * kBlock - 1; p < (fills + 1) * kBlock; ++p) {
      const auto [first, end] = NeededSpans(group, kBlock, p);
      EXPECT_TRUE(first == end || first + behind >= fills) << window;
    }
  }
}

// By the definition: is every position there that group sees from p?
bool CanResume(const LayerGroup& group, GroupIndex g, TokenPos p,
               const std::vector<std::vector<uint32_t>>& spans,
               const States& states) {
  if (p == 0) {
    return true;
  }
  if (group.kind == GroupKind::kRecurrent) {
    return states.Has(g, p);
  }
  for (TokenPos q = 0; q < p; ++q) {
    const bool seen =
        group.kind != GroupKind::kWindow || q + group.window >= p + 1;
    if (seen && q % kBlock >= spans[q / kBlock][g]) {
      return false;
    }
  }
  return true;
}

TEST(ResumeTest, EqualsTheDefinitionOnRandomCoverage) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t n) { return random() % n; };
  for (int round = 0; round < 3000; ++round) {
    std::vector<LayerGroup> groups;
    std::vector<std::set<TokenPos>> positions;
    const uint32_t num_groups = 1 + below(3);
    const uint32_t num_spans = 1 + below(6);
    const uint32_t last_tokens = 1 + below(kBlock);
    const TokenPos end = (num_spans - 1) * kBlock + last_tokens;
    for (uint32_t g = 0; g < num_groups; ++g) {
      const uint32_t kind = below(4);
      groups.push_back(kind == 0   ? Recurrent()
                       : kind == 1 ? Window(1 + below(50))
                                   : Full());
      positions.emplace_back();
      for (uint32_t i = below(40); i > 0; --i) {
        positions.back().insert(1 + below(end));
      }
    }
    std::vector<std::vector<uint32_t>> spans(num_spans);
    for (std::vector<uint32_t>& span : spans) {
      for (uint32_t g = 0; g < num_groups; ++g) {
        span.push_back(below(3) > 0 ? kBlock : below(kBlock + 1));
      }
    }
    const CacheLayout layout = Layout(groups);
    const States states(positions);
    TokenPos expected = end;
    while (![&] {
      for (GroupIndex g = 0; g < num_groups; ++g) {
        if (!CanResume(groups[g], g, expected, spans, states)) {
          return false;
        }
      }
      return true;
    }()) {
      --expected;
    }
    ASSERT_EQ(Scan(layout, spans, last_tokens, states), expected)
        << "round " << round;
  }
}

}  // namespace
}  // namespace everwarm::cache
