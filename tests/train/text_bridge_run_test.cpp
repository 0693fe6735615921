// The text bridge through the doors of a run: trained beside the cube, resumed, scored, and asked.

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "data/makers.h"
#include "data/pairs/pairs.h"
#include "data/text/tokenizer.h"
#include "io/safetensors.h"
#include "train/evaluate.h"
#include "train/run_settings.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

using nlohmann::json;

class TextBridgeRun : public TinyRun {
protected:
    static constexpr std::uint32_t kPairs = 71;  // 64 to train on, 7 to select by

    void SetUp() override {
        if (!data::Tokenizer::available()) GTEST_SKIP() << "this build has no SentencePiece";
        TinyRun::SetUp();
        data::PairsOptions options;
        options.count = kPairs;
        options.dimensions = 24;
        ASSERT_TRUE(data::make_pairs(folder_ / "pairs", options).ok());
    }
    void TearDown() override {
        if (!folder_.empty()) TinyRun::TearDown();
    }
    base::Result<RunResult> bridge(const std::string& name, const std::vector<std::string>& settings, bool resume = false,
                                   const io::Path& init = {}) {
        const std::string text =
            "device = \"cpu\"\nthreads = 2\n[model]\nname = \"energy_flow\"\nwidth = 5\nheight = 4\ndepth = 8\nhidden = 8\n"
            "[model.text_bridge]\nenabled = true\nwidth = 16\nheads = 2\ninner = 24\nlayers = 1\nvocabulary = 400\n[data]\npath "
            "= \"" +
            (folder_ / "pairs").string() + "\"\n[train]\nepochs = 2\nbatch = 16\n[eval]\nbatch = 5\n[optim]\nlr = 0.01\n";
        MILLRACE_LET(recipe, parse_recipe(text, "bridge.toml", {settings, {}}));
        TrainRequest request;
        request.out = folder_ / name;
        request.resume = resume;
        request.init = init;
        request.command = {"test"};
        return train(recipe, request, {&observer_});
    }
    std::map<std::string, std::string> tensors(const std::string& run) const {
        const auto file = io::SafetensorsFile::open(folder_ / run / "checkpoints/last/model.safetensors");
        EXPECT_TRUE(file.ok());
        std::map<std::string, std::string> all;
        for (const io::TensorView& tensor : file->tensors())
            all[tensor.name] = std::string(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
        return all;
    }
    struct Question {
        std::vector<std::string> texts;
        std::string device, data_path;
        bool nearest = false;
    };
    base::Result<models::TextReport> answer_texts(const io::Path& run, const Question& question) {
        MILLRACE_LET(best, load_best(run, question.device, question.data_path));
        MILLRACE_LET(device, choose_device(best.recipe.text("device")));
        MILLRACE_LET(precision, choose_precision(best.recipe.text("precision"), device));
        return best.family->answer({best.recipe, best.checkpoint, device, precision, question.texts, question.nearest});
    }
    std::string refusal(const Question& request, const std::string& run = "run") {
        const auto answered = answer_texts(folder_ / run, request);
        EXPECT_FALSE(answered.ok());
        if (answered.ok()) return {};
        EXPECT_EQ(answered.error().exit_status, 2) << answered.error().text();
        return answered.error().text();
    }
};

TEST_F(TextBridgeRun, InitialWeightsBringTheirTokenizerToOtherData) {
    ASSERT_TRUE(bridge("run", {"train.epochs=1"}).ok());
    data::PairsOptions options;
    options.count = kPairs;
    options.dimensions = 24;
    options.seed = 99;
    ASSERT_TRUE(data::make_pairs(folder_ / "other", options).ok());
    const std::string other = "data.path=" + (folder_ / "other").string();
    const auto tuned = bridge("tuned", {other, "train.epochs=1", "optim.lr=0"}, false, folder_ / "run");
    ASSERT_TRUE(tuned.ok()) << tuned.error().text();
    EXPECT_EQ(tensors("tuned"), tensors("run"));
    const auto without = bridge("none", {"model.text_bridge.enabled=false"}, false, folder_ / "run");
    ASSERT_FALSE(without.ok());
    EXPECT_NE(without.error().text().find("additional "), std::string::npos) << without.error().text();
}

TEST_F(TextBridgeRun, MapperAndCubeLearnAsIfItWereNotThere) {
    // The norm of all gradients is shared, so nothing may be clipped here.
    ASSERT_TRUE(bridge("with", {"optim.clip_norm=0", "model.noise=0.3"}).ok());
    ASSERT_TRUE(bridge("without", {"optim.clip_norm=0", "model.noise=0.3", "model.text_bridge.enabled=false"}).ok());
    const auto with = tensors("with"), without = tensors("without");
    EXPECT_GT(with.size(), without.size() + 20);
    for (const auto& [name, bytes] : without) EXPECT_EQ(with.at(name), bytes) << name;
    EXPECT_TRUE(with.contains("text.tokenizer"));
    EXPECT_FALSE(without.contains("text.tokenizer"));
}

TEST_F(TextBridgeRun, ResumedRunHasTheBitsOfOneThatWasNotInterrupted) {
    for (const char* micro : {"train.micro_batch=0", "train.micro_batch=4"}) {
        const std::string whole = std::string("whole") + micro, halves = std::string("halves") + micro;
        ASSERT_TRUE(bridge(whole, {micro}).ok());
        ASSERT_TRUE(bridge(halves, {micro, "train.steps=5"}).ok());
        EXPECT_NE(last(halves), last(whole));
        const auto result = bridge(halves, {micro}, true);
        ASSERT_TRUE(result.ok()) << result.error().text();
        EXPECT_EQ(last(halves), last(whole));
        EXPECT_EQ(last(halves, "optimizer.safetensors"), last(whole, "optimizer.safetensors"));
    }
}

TEST_F(TextBridgeRun, FiguresFollowTrainingAndEvaluationRepeatsThem) {
    const auto result = bridge("run", {"train.epochs=8"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    const auto of = [&](std::size_t epoch, const char* name) {
        return observer_.epochs.at(epoch).validation[0].more.find(name)->value;
    };
    EXPECT_LT(of(7, "bridge_token_loss"), 0.9 * of(0, "bridge_token_loss"));
    EXPECT_GT(of(7, "bridge_token_accuracy"), of(0, "bridge_token_accuracy"));
    for (const char* share : {"bridge_token_accuracy", "bridge_word_overlap", "bridge_exact"}) {
        EXPECT_GE(of(7, share), 0);
        EXPECT_LE(of(7, share), 1);
    }
    const auto evaluated = evaluate_run(folder_ / "run", {});
    ASSERT_TRUE(evaluated.ok()) << evaluated.error().text();
    for (const models::Figure& figure : result->members[0].more.figures)
        EXPECT_EQ(evaluated->members[0].more.find(figure.name)->value, figure.value) << figure.name;
}

TEST_F(TextBridgeRun, ComponentTimesTellTheBridgeFromTheCube) {
    ASSERT_TRUE(bridge("run", {"telemetry.interval=1s", "telemetry.components=on"}).ok());
    std::ifstream in(folder_ / "run" / "metrics.jsonl");
    int seen = 0;
    for (std::string line; std::getline(in, line);) {
        const json row = base::json_or_throw(line);
        if (row.at("kind") != "components") continue;
        ++seen;
        const double bridge = row.at("component/text_bridge_ms"), energy = row.at("component/energy_ms");
        EXPECT_GT(bridge, 0);
        EXPECT_GT(energy, 0);
        double parts = 0;
        for (const char* part : {"forward", "loss", "backward"})
            parts += row.at(std::string("component/") + part + "_ms").get<double>();
        EXPECT_NEAR(bridge + energy, parts, 1e-6);
    }
    EXPECT_GT(seen, 0);
}

TEST_F(TextBridgeRun, AnswersWhatItWasTaught) {
    // Six pairs by heart; the checkpoint must carry all that an answer needs.
    data::PairsOptions few;
    few.count = 6;
    few.dimensions = 24;
    ASSERT_TRUE(data::make_pairs(folder_ / "few", few).ok());
    const std::vector<data::TextPair> pairs{data::sentence_pair(42, 0), data::sentence_pair(42, 1), data::sentence_pair(42, 2)};
    const auto result =
        bridge("run", {"data.path=" + (folder_ / "few").string(), "data.validation=0", "train.epochs=100",
                       "checkpoint.every_epochs=100", "train.batch=6", "model.text_bridge.width=32", "optim.lr=0.005"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    std::filesystem::remove_all(folder_ / "few");
    Question request;
    for (const data::TextPair& pair : pairs) request.texts.push_back(pair.input);
    const auto answered = answer_texts(folder_ / "run", request);
    ASSERT_TRUE(answered.ok()) << answered.error().text();
    ASSERT_EQ(answered->answers.size(), 3u);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        EXPECT_EQ(answered->answers[i].answer, pairs[i].target);
        EXPECT_EQ(answered->answers[i].text, pairs[i].input);
        EXPECT_EQ(answered->answers[i].unknown, 0);
        EXPECT_FALSE(answered->answers[i].cosine.has_value());
    }
    // Rows know nothing of each other: alone, and in batches of five with an incomplete last one, each answers the same.
    Question many;
    for (int i = 0; i < 7; ++i) many.texts.push_back(pairs[static_cast<std::size_t>(i) % 3].input);
    const auto batched = answer_texts(folder_ / "run", many);
    ASSERT_TRUE(batched.ok());
    for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(batched->answers[i].answer, pairs[i % 3].target) << i;
}

TEST_F(TextBridgeRun, NearestTargetIsOneOfThoseSetAside) {
    ASSERT_TRUE(bridge("run", {}).ok());
    Question request{{"The professor sold seven carrots to the builder."}, "", "", true};
    const auto answered = answer_texts(folder_ / "run", request);
    ASSERT_TRUE(answered.ok()) << answered.error().text();
    ASSERT_TRUE(answered->answers[0].cosine.has_value());
    EXPECT_LE(std::abs(*answered->answers[0].cosine), 1 + 1e-6);
    const auto set = data::load_pair_set(folder_ / "pairs", 0.1, 42);
    ASSERT_TRUE(set.ok());
    bool found = false;
    for (const std::int32_t row : set->part(data::Part::validation))
        found = found || set->texts[static_cast<std::size_t>(row)].target == answered->answers[0].nearest;
    EXPECT_TRUE(found) << answered->answers[0].nearest;
    request.data_path = (folder_ / "nowhere").string();
    const auto without = answer_texts(folder_ / "run", request);
    ASSERT_TRUE(without.ok()) << without.error().text();
    EXPECT_FALSE(without->answers[0].cosine.has_value());
}

TEST_F(TextBridgeRun, TextsThatCannotBeReadAreRefused) {
    ASSERT_TRUE(bridge("run", {}).ok());
    EXPECT_NE(refusal({{"The clerk camps.", " \t"}, "", "", false}).find("empty"), std::string::npos);
    EXPECT_NE(refusal({{"\xe6\xb0\xb4"}, "", "", false}).find("trained on"), std::string::npos);
    std::string longest;
    for (int i = 0; i < 60; ++i) longest += "the market ";
    EXPECT_NE(refusal({{longest}, "", "", false}).find("tokens"), std::string::npos);
    ASSERT_TRUE(bridge("plain", {"model.text_bridge.enabled=false"}).ok());
    EXPECT_NE(refusal({{"The clerk camps."}, "", "", false}, "plain").find("no text bridge"), std::string::npos);
}

TEST_F(TextBridgeRun, BadSettingsAreRefusedByName) {
    const auto refused = [&](const std::string& setting) {
        const auto result = bridge("refused", {setting});
        EXPECT_FALSE(result.ok()) << setting;
        if (result.ok()) return std::string();
        EXPECT_EQ(result.error().exit_status, 2);
        EXPECT_FALSE(std::filesystem::exists(folder_ / "refused"));
        return result.error().text();
    };
    EXPECT_NE(refused("model.text_bridge.heads=3").find("model.text_bridge.width"), std::string::npos);
    EXPECT_NE(refused("model.text_bridge.vocabulary=5").find("model.text_bridge.vocabulary"), std::string::npos);
    EXPECT_NE(refused("model.text_bridge.max_tokens=1").find("model.text_bridge.max_tokens"), std::string::npos);
    EXPECT_NE(refused("model.text_bridge.encode_weight=-1").find("model.text_bridge.encode_weight"), std::string::npos);
}

TEST_F(TextBridgeRun, LongSentencesAreCutAndACheckpointKeepsItsTokenizer) {
    ASSERT_TRUE(bridge("run", {"model.text_bridge.max_tokens=6", "train.steps=3"}).ok());
    EXPECT_NE(observer_.starts.back().make.find("sentences of up to 6 and 6"), std::string::npos) << observer_.starts.back().make;
    // Other sentences than those it was trained on are cut and numbered as the run would.
    data::PairsOptions options;
    options.count = 40;
    options.dimensions = 24;
    options.seed = 7;
    ASSERT_TRUE(data::make_pairs(folder_ / "others", options).ok());
    const auto evaluated = evaluate_run(folder_ / "run", {}, "", (folder_ / "others").string());
    ASSERT_TRUE(evaluated.ok()) << evaluated.error().text();
    EXPECT_NE(evaluated->members[0].more.find("bridge_token_loss"), nullptr);
}

}  // namespace
}  // namespace millrace::train
