// Text to text from the command line.

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/folder.h"
#include "data/text/tokenizer.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::json;

class TextBridgeCommands : public InFolder {
protected:
    void SetUp() override {
        if (!data::Tokenizer::available()) GTEST_SKIP() << "this build has no SentencePiece";
        InFolder::SetUp();
        const Said made = call({"data", "make", "pairs", "--out", path("pairs"), "--count", "61", "--dimensions", "16"});
        ASSERT_EQ(made.status, 0) << made.err;
        write("flow.toml",
              "device = \"cpu\"\n[model]\nname = \"energy_flow\"\nwidth = 4\nheight = 3\ndepth = 6\nhidden = 6\n"
              "[model.text_bridge]\nenabled = true\nwidth = 8\nheads = 2\ninner = 8\nvocabulary = 300\n[data]\npath = \"" +
                  path("pairs") + "\"\n[train]\nepochs = 1\nbatch = 8\n");
    }
    void TearDown() override {
        if (!folder_.empty()) InFolder::TearDown();
    }
    Said flow(const std::string& name, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> words{"train", path("flow.toml"), "--out", path(name)};
        words.insert(words.end(), more.begin(), more.end());
        return call(words);
    }
    const std::string first_ = "The shepherd broke a window in the market at sunrise.",
                      second_ = "The professor sold seven carrots to the builder.";
};

TEST_F(TextBridgeCommands, TextsAreAnsweredOneLineEach) {
    const Said trained = flow("run", {"--json"});
    ASSERT_EQ(trained.status, 0) << trained.err;
    EXPECT_NE(trained.err.find("text bridge: encode loss"), std::string::npos) << trained.err;
    EXPECT_TRUE(base::json_or_throw(trained.out).contains("bridge_word_overlap"));
    const Said plain = call({"eval", path("run"), "--text", first_, "--text", second_});
    ASSERT_EQ(plain.status, 0) << plain.err;
    EXPECT_EQ(std::count(plain.out.begin(), plain.out.end(), '\n'), 2) << plain.out;
    const Said detailed = call({"eval", path("run"), "--json", "--text", first_, "--text", second_});
    ASSERT_EQ(detailed.status, 0) << detailed.err;
    const Json json = base::json_or_throw(detailed.out);
    ASSERT_EQ(json.at("answers").size(), 2u);
    EXPECT_EQ(json.at("answers")[1].at("text"), second_);
    EXPECT_EQ(json.at("answers")[0].at("answer").get<std::string>() + "\n" +
                  json.at("answers")[1].at("answer").get<std::string>() + "\n",
              plain.out);
    EXPECT_TRUE(json.at("answers")[0].at("nearest_cosine").is_number());

    const Said drawn = call({"eval", path("run"), "--plot", path("pictures")});
    EXPECT_EQ(drawn.status, 0) << drawn.err;

    // The run alone is enough.
    std::filesystem::remove_all(folder_ / "pairs");
    const Said alone = call({"eval", path("run"), "--text", first_, "--text", second_});
    EXPECT_EQ(alone.status, 0) << alone.err;
    EXPECT_EQ(alone.out, plain.out);
    const Said unplaced = call({"eval", path("run"), "--json", "--text", first_});
    ASSERT_EQ(unplaced.status, 0) << unplaced.err;
    EXPECT_TRUE(base::json_or_throw(unplaced.out).at("answers")[0].at("nearest_cosine").is_null()) << "not measured, not 0";
}

TEST_F(TextBridgeCommands, WhatCannotBeAnsweredIsRefused) {
    ASSERT_EQ(flow("run", {"--quiet", "--set", "train.steps=1"}).status, 0);
    ASSERT_EQ(flow("plain", {"--quiet", "--set", "train.steps=1", "--set", "model.text_bridge.enabled=false"}).status, 0);
    expect_refusal(call({"eval", path("plain"), "--text", first_}), {"no text bridge", "model.text_bridge.enabled=true"});
    expect_refusal(call({"eval", path("run"), "--text", ""}), {"--text", "empty"});
    expect_refusal(call({"eval", path("run"), "--text", first_ + first_ + first_ + first_}), {"--text", "tokens"});
    expect_refusal(call({"eval", path("run"), "--text", first_, "--split", "validation"}), {"--split"});
    expect_refusal(call({"eval", path("run"), "--text", first_, "--plot", path("pictures")}), {"--plot"});
    expect_refusal(call({"eval", path("nowhere"), "--text", first_}), {"nowhere"});
    EXPECT_FALSE(base::json_or_throw(call({"eval", path("plain"), "--json"}).out).contains("bridge_exact"));
}

}  // namespace
}  // namespace millrace::cli
