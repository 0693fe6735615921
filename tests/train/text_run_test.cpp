// Text through the doors of a run: keys, start, training, resuming, other texts. The model is the smallest that reads windows.

#include <algorithm>
#include <cmath>

#include "data/makers.h"
#include "data/text/text_set.h"
#include "io/safetensors.h"
#include "models/registry.h"
#include "nn/dense.h"
#include "nn/text.h"
#include "train/console.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

constexpr std::int32_t kWidth = 16;

/// Predicts a token from the one before it.
class Bigrams final : public models::Model {
public:
    explicit Bigrams(data::Field tokens) : tokens_(std::move(tokens)) {}

    base::Status declare(tape::Store& store) override {
        embedding_ = nn::TokenEmbedding(store, "embedding", tokens_.limit, tokens_.width - 1, kWidth);
        logits_ = nn::Dense(store, {"logits"}, {}, nn::linear(kWidth, tokens_.limit));
        return base::ok();
    }
    [[nodiscard]] data::Fields wants() const override {
        return {{"tokens", data::Field::Kind::integer, tokens_.width}, {"length", data::Field::Kind::integer, 1}};
    }
    models::Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override {
        const auto gathered = source.gather(builder, part, rows, {{"tokens"}, {"length"}});
        const std::int32_t length = tokens_.width - 1;
        const nn::Sequences inputs{gathered[0].columns(0, length), gathered[1]},
            targets{gathered[0].columns(1, length), gathered[1]};
        const tape::Value logits = logits_.forward(builder, embedding_.forward(builder, inputs));
        nn::TokenLossOptions options;
        options.as_loss = true;
        nn::token_cross_entropy(builder, logits, targets, 0, options);
        if (builder.training()) builder.backward();
        return {logits, {}};
    }
    [[nodiscard]] bool classifies() const override { return false; }
    [[nodiscard]] std::vector<models::Attachment> attachments() const override {
        return {{"text.tokenizer", tokens_.tokenizer->bytes()}};
    }

private:
    data::Field tokens_;
    nn::TokenEmbedding embedding_;
    nn::Dense logits_;
};

void add_bigrams() {
    models::Family family;
    family.name = "bigrams";
    family.presets = {"debug"};
    family.schema = [](const std::string&) { return base::Schema(); };
    family.make = [](const base::Recipe&, const data::Fields& fields) -> base::Result<std::unique_ptr<models::Model>> {
        return std::unique_ptr<models::Model>(std::make_unique<Bigrams>(*data::find_field(fields, "tokens")));
    };
    family.data = data::DataKind::text;
    family.measures = {"validation_loss"};
    family.stored_data = [](const io::LoadedCheckpoint& checkpoint) -> base::Result<data::StoredData> {
        data::StoredData stored;
        MILLRACE_LET(tokenizer, data::stored_tokenizer(checkpoint.members.front().model, "text.tokenizer"));
        stored.tokenizer = std::move(tokenizer);
        return stored;
    };
    models::add_family(std::move(family));
}

class TextRun : public TinyRun {
protected:
    void SetUp() override {
        TinyRun::SetUp();
        add_bigrams();
        ASSERT_TRUE(data::make_text(folder_ / "text", {3000, 7}).ok());
    }
    base::Result<RunResult> start(const std::string& name, std::vector<std::string> settings, bool resume = false,
                                  const io::Path& init = {}, const std::string& text = "text") {
        for (const char* usual : {"model.name=bigrams", "data.length=9", "data.vocabulary=500", "train.batch=24", "eval.batch=10",
                                  "optim.lr=0.03", "telemetry.interval=0s"})
            settings.insert(settings.begin(), usual);
        settings.push_back("data.path=" + (folder_ / text).string());
        TrainRequest request;
        request.out = folder_ / name;
        request.resume = resume;
        request.init = init;
        request.command = {"test"};
        return train(recipe(std::move(settings)), request, {&observer_});
    }
};

TEST_F(TextRun, ItLearnsMoreThanFrequencies) {
    const auto result = start("a", {"train.epochs=6"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    ASSERT_EQ(observer_.starts.size(), 1u);
    const std::string text = start_text(observer_.starts[0]);
    EXPECT_NE(text.find("windows to train on"), std::string::npos) << text;
    const std::size_t at = text.find("\n        validation: 3");
    ASSERT_NE(at, std::string::npos) << text;
    const std::string mark = "unigram perplexity ";
    const double unigram = std::stod(text.substr(text.find(mark, at) + mark.size()));
    EXPECT_GT(unigram, 50) << text;
    ASSERT_EQ(observer_.epochs.size(), 6u);
    EXPECT_LT(std::exp(observer_.epochs.back().validation[0].loss), unigram / 2) << text;
}

TEST_F(TextRun, AResumedRunHasTheSameBits) {
    ASSERT_TRUE(start("whole", {"train.epochs=3", "members=2"}).ok());
    // In the middle of the second epoch, whose shift is another than the first's.
    ASSERT_TRUE(start("parts", {"train.epochs=3", "members=2", "train.steps=20"}).ok());
    ASSERT_TRUE(start("parts", {"train.epochs=3", "members=2"}, true).ok());
    for (const char* file : {"member-000/model.safetensors", "member-001/model.safetensors"})
        EXPECT_EQ(last("parts", file), last("whole", file));
}

TEST_F(TextRun, AChangedTextIsNotResumed) {
    ASSERT_TRUE(start("a", {"train.epochs=2", "train.steps=5"}).ok());
    ASSERT_TRUE(data::make_text(folder_ / "other", {3000, 8}).ok());
    const auto resumed = start("a", {"train.epochs=2"}, true, {}, "other");
    ASSERT_FALSE(resumed.ok());
    EXPECT_NE(resumed.error().text().find("trained on other data"), std::string::npos) << resumed.error().text();
}

TEST_F(TextRun, InitialWeightsBringTheirWordsToAnotherText) {
    ASSERT_TRUE(start("a", {"train.epochs=1"}).ok());
    ASSERT_TRUE(data::make_text(folder_ / "other", {3000, 8}).ok());
    ASSERT_TRUE(start("b", {"train.epochs=1"}, false, folder_ / "a", "other").ok());
    ASSERT_TRUE(start("c", {"train.epochs=1"}, false, {}, "other").ok());
    const auto words = [&](const std::string& run) {
        const auto file = io::SafetensorsFile::open(folder_ / run / "checkpoints/last/model.safetensors");
        EXPECT_TRUE(file.ok());
        return data::stored_tokenizer(*file, "text.tokenizer").value()->bytes();
    };
    EXPECT_EQ(words("b"), words("a"));
    EXPECT_NE(words("c"), words("a"));
    EXPECT_FALSE(start("d", {"train.epochs=1", "data.vocabulary=499"}, false, folder_ / "a").ok());
}

TEST_F(TextRun, TextIsNeverStreamed) {
    const auto result = start("a", {"data.mode=stream"});
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().text().find("windows are always resident"), std::string::npos) << result.error().text();
}

}  // namespace
}  // namespace millrace::train
