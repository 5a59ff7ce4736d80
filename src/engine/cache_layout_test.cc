#include "engine/cache_layout.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/fake_model.h"

namespace everwarm::engine {
namespace {

class RecurrentModel final : public models::Model {
 public:
  RecurrentModel() {
    info_.path = "/models/only-states.gguf";
    info_.num_layers = 3;
    groups_.resize(1);
    groups_[0].recurrent = true;
    groups_[0].geometry = BlockGeometry(3, 1, {{1, 8}});
  }
  const models::ModelInfo& info() const override { return info_; }
  const std::vector<models::ModelGroup>& groups() const override {
    return groups_;
  }
  absl::StatusOr<absl::Span<const float>> Step(
      const models::StepInput& /*input*/) override {
    return absl::UnimplementedError("no steps");
  }

 private:
  models::ModelInfo info_;
  std::vector<models::ModelGroup> groups_;
};

TEST(CacheLayoutTest, GroupsAreOfTheModelsKinds) {
  const auto layout = CacheLayoutOf(FakeModel(32, 100, true));
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->block_tokens, 32u);
  ASSERT_EQ(layout->groups.size(), 3u);
  EXPECT_EQ(layout->groups[0].kind, cache::GroupKind::kRecurrent);
  EXPECT_EQ(layout->groups[1].kind, cache::GroupKind::kFull);
  EXPECT_EQ(layout->groups[2].kind, cache::GroupKind::kWindow);
  EXPECT_EQ(layout->groups[2].window, 100u);
}

TEST(CacheLayoutTest, AModelOfRecurrentLayersAloneIsRefusedByItsFile) {
  const absl::Status status = CacheLayoutOf(RecurrentModel()).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  for (const char* const word :
       {"/models/only-states.gguf", "3 layers", "recurrent"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace everwarm::engine
