// What a step may look like, for models with and without recurrent states.
#include "models/step_input.h"

#include <cstddef>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace everwarm::models {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kVocabulary = 50;

// Two sequences of a model with a full and a recurrent group. Nothing reads the
// slots, so any addresses do.
class StepInputTest : public testing::Test {
 protected:
  StepInputTest() {
    ModelGroup full;
    full.name = "full";
    full.geometry = BlockGeometry(1, 16, {{1, 8}, {1, 8}});
    ModelGroup recurrent;
    recurrent.name = "recurrent";
    recurrent.recurrent = true;
    recurrent.geometry = BlockGeometry(2, 1, {{1, 24}, {1, 64}});
    groups_ = {full, recurrent};
    for (int s = 0; s < 2; ++s) {
      sequences_.push_back({{absl::MakeConstSpan(blocks_[s]),
                             absl::MakeConstSpan(&states_[s], 1)}});
    }
  }

  absl::Status Check(const std::vector<StepRow>& rows) const {
    return CheckStepInput({rows, sequences_}, groups_, kVocabulary);
  }
  void ExpectRefused(const std::vector<StepRow>& rows,
                     const std::string& words) const {
    const absl::Status status = Check(rows);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  std::byte memory_[6];
  std::vector<std::byte*> blocks_[2] = {{&memory_[0], &memory_[1]},
                                        {&memory_[2], &memory_[3]}};
  std::byte* states_[2] = {&memory_[4], &memory_[5]};
  std::vector<ModelGroup> groups_;
  std::vector<StepSequence> sequences_;
};

TEST_F(StepInputTest, RowsOfSequencesMayBeMixed) {
  EXPECT_TRUE(Check({{1, 0, 0}}).ok());
  EXPECT_TRUE(
      Check({{1, 7, 0}, {1, 0, 1}, {1, 8, 0}, {1, 1, 1}, {1, 2, 1}}).ok());
}

TEST_F(StepInputTest, PositionsOfASequenceFollowEachOther) {
  ExpectRefused({{1, 3, 0}, {1, 5, 0}}, "position 5 of sequence 0 follows 3");
  ExpectRefused({{1, 3, 0}, {1, 0, 1}, {1, 3, 0}}, "position 3");
  ExpectRefused({{1, 3, 0}, {1, 2, 0}}, "position 2");
}

TEST_F(StepInputTest, TokensAndSequencesAreThere) {
  ExpectRefused({}, "without rows");
  ExpectRefused({{kVocabulary, 0, 0}}, "token 50");
  ExpectRefused({{-1, 0, 0}}, "token -1");
  ExpectRefused({{1, 0, 2}}, "sequence 2");
  ExpectRefused({{1, 32, 0}}, "no block of group 'full' for position 32");
}

TEST_F(StepInputTest, AStateIsOneAddress) {
  sequences_[0].groups[1] = {};
  ExpectRefused({{1, 0, 0}}, "sequence 0 has 0 for its state");
  EXPECT_TRUE(Check({{1, 0, 1}}).ok());
  sequences_[0].groups[1] = absl::MakeConstSpan(states_);
  ExpectRefused({{1, 0, 0}}, "sequence 0 has 2 for its state");
  states_[0] = nullptr;
  sequences_[0].groups[1] = absl::MakeConstSpan(&states_[0], 1);
  ExpectRefused({{1, 0, 0}}, "sequence 0 has no address for its state");
}

TEST_F(StepInputTest, NoTwoSequencesOfAStepShareAState) {
  states_[1] = states_[0];
  ExpectRefused({{1, 0, 0}, {1, 0, 1}},
                "sequences 0 and 1 have one state between them");
  EXPECT_TRUE(Check({{1, 0, 1}, {1, 1, 1}}).ok());
}

}  // namespace
}  // namespace everwarm::models
