#include "engine/publication_points.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <vector>

namespace everwarm::engine {
namespace {

using cache::CacheLayout;
using cache::GroupKind;
using cache::StateUse;
using Prompt = PublicationPoints::Prompt;
using Stage = PublicationPoints::Stage;

CacheLayout Layout(std::vector<GroupKind> kinds) {
  CacheLayout layout;
  for (const GroupKind kind : kinds) {
    layout.groups.push_back({"", kind, 0, {}});
  }
  return layout;
}

// Where a prompt's steps end when a step could take all of it, and what is
// published there.
std::map<TokenPos, StateUse> Published(const PublicationPoints& points,
                                       const Prompt& prompt) {
  std::map<TokenPos, StateUse> published;
  TokenPos length = prompt.cached;
  while (length < prompt.length) {
    length = std::min(points.Next(prompt, length).value_or(prompt.length),
                      prompt.length);
    const Stage stage =
        length == prompt.length ? Stage::kPromptDone : Stage::kPrompt;
    if (const auto use = points.At(prompt, length, stage)) {
      published[length] = *use;
    }
  }
  return published;
}

using Points = std::map<TokenPos, StateUse>;

TEST(PublicationPointsTest, FullGroupsEndStepsOnlyAtTheBoundary) {
  const PublicationPoints points(Layout({GroupKind::kFull, GroupKind::kLatent}),
                                 512);
  EXPECT_EQ(Published(points, {2000, 1990, 0, 700}),
            (Points{{1990, StateUse::kKept}, {2000, StateUse::kNone}}));
  EXPECT_EQ(points.Next({2000, 0, 0, 0}, 0), std::nullopt);
  // As blocks fill.
  EXPECT_EQ(points.At({2000, 0, 0, 0}, 64, Stage::kPrompt), StateUse::kNone);
  EXPECT_EQ(points.At({2000, 0, 0, 0}, 65, Stage::kPrompt), std::nullopt);
  EXPECT_EQ(points.At({20, 0, 0, 0}, 64, Stage::kReply), std::nullopt);
  EXPECT_EQ(points.At({20, 0, 0, 0}, 256, Stage::kReply), StateUse::kNone);
}

TEST(PublicationPointsTest, WindowsAreAlsoPublishedWhereThePromptDeparts) {
  const PublicationPoints points(Layout({GroupKind::kFull, GroupKind::kWindow}),
                                 512);
  EXPECT_EQ(Published(points, {2000, 1990, 0, 700}),
            (Points{{700, StateUse::kKept},
                    {1990, StateUse::kKept},
                    {2000, StateUse::kNone}}));
  EXPECT_EQ(points.At({2000, 1990, 0, 0}, 64, Stage::kPrompt), std::nullopt);
}

TEST(PublicationPointsTest, StatesAreLeftOnTheWayAndKeptAtChosenPlaces) {
  const PublicationPoints points(
      Layout({GroupKind::kRecurrent, GroupKind::kFull}), 512);
  EXPECT_EQ(Published(points, {2000, 1990, 300, 700}),
            (Points{{512, StateUse::kPassing},
                    {700, StateUse::kKept},
                    {1024, StateUse::kPassing},
                    {1536, StateUse::kPassing},
                    {1990, StateUse::kKept},
                    {2000, StateUse::kNone}}));
  EXPECT_EQ(points.At({20, 10, 0, 0}, 512, Stage::kReply), StateUse::kPassing);
  EXPECT_EQ(points.At({20, 10, 0, 0}, 513, Stage::kReply), std::nullopt);
}

TEST(PublicationPointsTest, WithoutABoundaryTheSamePromptAgainCostsOneToken) {
  const PublicationPoints points(
      Layout({GroupKind::kRecurrent, GroupKind::kFull}), 512);
  EXPECT_EQ(Published(points, {600, 0, 0, 0}),
            (Points{{512, StateUse::kPassing},
                    {599, StateUse::kKept},
                    {600, StateUse::kNone}}));
}

TEST(PublicationPointsTest, PlacesThatSaveNextToNothingAreNone) {
  const PublicationPoints points(
      Layout({GroupKind::kRecurrent, GroupKind::kFull}), 512);
  // A few tokens of a new turn; what is known ends right behind the last state.
  EXPECT_EQ(Published(points, {610, 607, 600, 604}),
            (Points{{607, StateUse::kNone}, {610, StateUse::kNone}}));
  // No step is cut for the last token of a short prompt.
  EXPECT_EQ(Published(points, {9, 0, 0, 0}), (Points{{9, StateUse::kNone}}));
  // The departure is where the boundary is.
  EXPECT_EQ(Published(points, {400, 390, 0, 385}),
            (Points{{390, StateUse::kKept}, {400, StateUse::kNone}}));
}

TEST(PublicationPointsTest, NoStatesAreLeftOnTheWayWhereNoneAreAskedFor) {
  const PublicationPoints points(
      Layout({GroupKind::kRecurrent, GroupKind::kFull}), 0);
  EXPECT_EQ(Published(points, {2000, 1990, 0, 0}),
            (Points{{1990, StateUse::kKept}, {2000, StateUse::kNone}}));
}

TEST(PublicationPointsTest, APromptThatIsGoneOnWithEndsItsStepsToo) {
  const PublicationPoints points(
      Layout({GroupKind::kRecurrent, GroupKind::kFull}), 512);
  // Beyond the prompt: tokens of a reply that was paused.
  EXPECT_EQ(points.Next({600, 590, 595, 700}, 650), 1024u);
}

}  // namespace
}  // namespace everwarm::engine
