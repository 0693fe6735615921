#pragma once
// What a family may offer beyond training and scoring. Its entry in the registry supplies it; generic code asks and never names
// one.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/recipe.h"
#include "base/result.h"
#include "io/checkpoint.h"
#include "io/table_file.h"
#include "models/model.h"

namespace millrace::models {

/// An option that a family adds to `millrace eval`; its value is a whole number.
struct EvalOption {
    std::string name, placeholder, meaning;  ///< "--plot-paths", "N", "how many to draw"
    std::optional<std::int64_t> value = {};
};

/// Which sample is drawn.
struct SampleInfo {
    std::string model;  ///< "collective debug"
    std::string part;
    std::int64_t sample = 0, samples = 0;
    std::uint64_t step = 0;  ///< the weights are those after this step
    std::vector<std::string> texts;
};
struct Picture {
    std::string name, svg;
};

/// Pictures of one sample on its way through a model.
class Pictures {
public:
    virtual ~Pictures() = default;
    /// As Model::build() of one sample for evaluation, with everything kept that draw() needs.
    virtual Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part) = 0;
    /// `kept`: what Outputs::kept held after a run.
    virtual base::Result<std::vector<Picture>> draw(const SampleInfo& sample, const std::vector<std::vector<double>>& kept,
                                                    const std::vector<EvalOption>& options) = 0;
};

/// A trained model, and where it is to run.
struct CheckpointRequest {
    const base::Recipe& recipe;
    const io::LoadedCheckpoint& checkpoint;
    ops::DeviceKind device;
    tape::Precision precision;
};

/// Texts for a trained model to answer.
struct TextRequest : CheckpointRequest {
    std::vector<std::string> texts;
    bool nearest = false;  ///< look for the nearest target: needs the data
};
struct TextAnswer {
    std::string text, answer;
    std::int32_t tokens = 0, unknown = 0;  ///< of the text; those that the training text never had
    std::optional<double> cosine;          ///< with the nearest target set aside; absent without the data
    std::string nearest;                   ///< that target's text
};
struct TextReport {
    std::string device;
    std::vector<TextAnswer> answers;
    double seconds = 0;  ///< of the answering itself
};

/// A text for a trained model to go on with.
struct PromptRequest : CheckpointRequest {
    std::string prompt;
    std::int32_t tokens = 50;  ///< to write
    double temperature = 1;    ///< of the draw; 0: always the likeliest
    std::int32_t top_k = 0;    ///< the draw is among so many of the likeliest; 0: all
    std::uint64_t seed = 1;
    std::size_t member = 0;  ///< of the checkpoint
};
struct PromptReport {
    std::string device, text;                                 ///< what was written
    std::int32_t prompt_tokens = 0, unknown = 0, tokens = 0;  ///< of the prompt, those of it that training never had, written
    double seconds = 0;
};

/// Files for a trained model to classify.
struct ClassifyRequest : CheckpointRequest {
    std::size_t member;        ///< of the checkpoint
    std::vector<io::Path> in;  ///< folders, and single files
    io::RowWriter& rows;       ///< takes a row for each file
    std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};
struct ClassifyReport {
    std::string device, summary;
    std::uint64_t files = 0, failed = 0;
    double seconds = 0;
};

/// A change of a model's structure that was not made yet.
struct StructureChange {
    std::string text;                   ///< what changes and why, for people; without settings why nothing can change
    std::vector<std::string> settings;  ///< keys of the changed model's recipe, as --set takes them: "model.tree=-1,0,0"
    /// Writes parameters, moments and groups of the changed model, from the store of the model before.
    std::function<void(tape::Store& from, tape::Store& to)> transfer = {};
};

/// Changes of a model's structure between two steps. Models of one member alone.
struct Structure {
    std::vector<std::string> operations = {};        ///< by name; empty: the family offers none
    std::vector<std::string> keys = {};              ///< of the recipe, which changes set
    void (*add_keys)(base::Schema& keys) = nullptr;  ///< that propose() reads: "structure.noise"
    /// `store` is the model's. What is proposed follows from what a checkpoint holds, so that a resumed run proposes the same.
    StructureChange (*propose)(const std::string& operation, const Model& model, tape::Store& store,
                               const base::Recipe& recipe) = nullptr;
};

/// What a family has to say about a run, for its folder.
struct RunFile {
    std::string name, content;
};
struct RunReport {
    std::vector<RunFile> files;
    std::string summary;  ///< a line for people
};

}  // namespace millrace::models
