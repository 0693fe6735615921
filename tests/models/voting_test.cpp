// Decisions about recordings against counting by hand.

#include "models/leak_cnn/leak_cnn.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "models/leak_cnn/leak_cnn.h"

namespace millrace::models {
namespace {

VotingRules rules(std::int32_t votes, std::int32_t windows, bool second_head = false) {
    VotingRules r;
    r.names = {"NOLEAK", "LEAK"};
    r.votes = votes;
    r.windows_per_vote = windows;
    r.second_head = second_head;
    return r;
}

TEST(Voting, ProbabilityIsTheMeanOfBothHeads) {
    const double logits[] = {0, std::log(3.0)};
    EXPECT_NEAR(window_probability(logits, 2, 99, rules(1, 1)), 0.75, 1e-12);
    EXPECT_NEAR(window_probability(logits, 2, 0, rules(1, 1, true)), (0.75 + 0.5) / 2, 1e-12);
    const double far[] = {-2000, 2000};
    EXPECT_EQ(window_probability(far, 2, -2000, rules(1, 1, true)), 0.5);
}

TEST(Voting, HalfOfTheVotesDecideAndTheThresholdCounts) {
    const double votes[] = {0.5, 0.5, 0.1, 0.2};
    EXPECT_TRUE(decides(votes, 4, 0.5));
    EXPECT_FALSE(decides(votes, 4, 0.51));
    EXPECT_FALSE(decides(votes + 1, 3, 0.5));  // one of three is less than half
}

TEST(Voting, FiguresFollowTheTable) {
    const Decisions d{6, 2, 3, 9};
    EXPECT_NEAR(d.precision(), 6.0 / 8, 1e-12);
    EXPECT_NEAR(d.recall(), 6.0 / 9, 1e-12);
    EXPECT_NEAR(d.f1(), 2 * 6.0 / (2 * 6 + 2 + 3), 1e-12);
    EXPECT_NEAR(d.accuracy(), 15.0 / 20, 1e-12);
    EXPECT_NEAR(d.mcc(), (6 * 9 - 2 * 3) / std::sqrt(8.0 * 9 * 11 * 12), 1e-12);
    for (const Decisions& nothing : {Decisions{0, 0, 5, 5}, Decisions{0, 3, 0, 4}, Decisions{}}) {
        EXPECT_EQ(nothing.f1(), 0);
        EXPECT_EQ(nothing.mcc(), 0);
    }
}

TEST(Voting, ThresholdIsTheLowestOfTheBest) {
    // Recordings of two votes. From 0.45 to 0.60 both are right; below, the second is a false alarm.
    const std::vector<double> votes{0.62, 0.9, 0.3, 0.42};
    EXPECT_DOUBLE_EQ(best_threshold(votes, {true, false}, 2), 0.45);
    EXPECT_DOUBLE_EQ(best_threshold(votes, {false, false}, 2), 0.10);  // nothing to find: all alike
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        std::vector<double> random;
        std::vector<bool> present;
        for (std::uint64_t i = 0; i < 21; ++i) random.push_back(base::uniform01(base::random_bits(seed, 0, 0, 0, i)));
        for (std::uint64_t i = 0; i < 7; ++i) present.push_back(base::random_bits(seed, 0, 0, 1, i) % 2 == 1);
        const double chosen = best_threshold(random, present, 3), f1 = judge(random, present, 3, chosen).f1();
        for (int i = 2; i <= 18; ++i) {
            const double other = judge(random, present, 3, i / 20.0).f1();
            EXPECT_TRUE(i / 20.0 < chosen ? other < f1 : other <= f1) << seed << " " << i;
        }
    }
}

/// Batches of uneven sizes over recordings of 2 votes of 2 windows; `logit` of the positive class.
Scored score(VotingRules r, const std::vector<double>& logit, const std::vector<double>& labels) {
    VotingScoring scoring(std::move(r));
    for (std::size_t first = 0; first < labels.size();) {
        const std::size_t count = std::min<std::size_t>(first == 0 ? 3 : 5, labels.size() - first);
        std::vector<double> logits, leak(count, 0), part;
        for (std::size_t i = first; i < first + count; ++i) {
            logits.insert(logits.end(), {0, logit[i]});
            part.push_back(labels[i]);
        }
        scoring.add({logits, leak, part});
        first += count;
    }
    return scoring.finish();
}

TEST(Voting, PassChoosesItsThresholdOnceAndTakesAStoredOne) {
    const std::vector<double> logits{3, 3, 3, 3, -3, -3, -3, -3, 0.1, 0.1, 0.1, 0.1}, labels{1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};
    const Scored chosen = score(rules(2, 2), logits, labels);
    ASSERT_EQ(chosen.chosen.size(), 1u);
    EXPECT_EQ(chosen.chosen[0].name, "threshold");
    EXPECT_DOUBLE_EQ(chosen.chosen[0].value, 0.55);  // between 0.525 and 0.953
    EXPECT_EQ(chosen.find("file_f1")->value, 1);
    EXPECT_EQ(chosen.refused, "");
    VotingRules stored = rules(2, 2);
    stored.threshold = 0.5;
    const Scored given = score(stored, logits, labels);
    EXPECT_TRUE(given.chosen.empty());
    EXPECT_NEAR(given.find("file_f1")->value, 2.0 / 3, 1e-12);
    EXPECT_NEAR(given.find("file_always_f1")->value, 0.5, 1e-12);
}

TEST(Voting, ConstantAnswersAreRefused) {
    const std::vector<double> labels{1, 1, 1, 1, 0, 0, 0, 0};
    for (const double constant : {-5.0, -0.2, 5.0}) {
        const Scored scored = score(rules(2, 2), std::vector<double>(8, constant), labels);
        EXPECT_NE(scored.refused.find("does not beat always answering LEAK"), std::string::npos) << constant;
    }
}

TEST(StoredRecordings, SayWhetherShortOnesWereRepeated) {
    RecordingData data{{{"NO", "YES"}, {}, 1, {4, 2}}, {{0.5f, 1}, {1, 2}}};
    for (const bool repeats : {false, true}) {
        data.classes.repeats = repeats;
        const auto read = decode(encode(data), "here");
        ASSERT_TRUE(read.ok()) << read.error().text();
        EXPECT_EQ(read->classes.repeats, repeats);
    }
    const std::string older = R"({"classes":["NO","YES"],"positive":1,"together":[4,2],"mean":[0.5],"deviation":[1]})";
    EXPECT_FALSE(decode(older, "here")->classes.repeats);
}

}  // namespace
}  // namespace millrace::models
