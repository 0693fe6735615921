#include "data/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "base/split.h"
#include "data/forms.h"
#include "data/pairs/resident_pairs.h"
#include "data/recordings/recording_set.h"
#include "data/recordings/resident_recordings.h"
#include "data/text/tokenizer.h"
#include "io/checksum.h"

namespace millrace::data {
namespace {

constexpr std::size_t kMostDomains = 64;

/// Data of another kind is a mistake in the recipe; its files missing is only how that shows.
base::Status check_kind(const base::Recipe& recipe, DataKind kind) {
    const Path path = recipe.text("data.path");
    const FormWords& found = words_of(form_of(path));
    if (found.form == Form::unknown || found.kind == kind) return base::ok();
    std::string wanted;
    for (const FormWords& form : forms())
        if (form.form != Form::unknown && form.kind == kind) wanted += (wanted.empty() ? "" : ", or ") + std::string(form.holds);
    const std::string maker = kind == DataKind::pairs ? "pairs" : kind == DataKind::text ? "text" : "garments";
    return recipe.bad("data.path",
                      fmt::format("data.path = \"{}\" holds {}, but {} is trained on {}; `millrace data make {} --out "
                                  "PATH` writes some",
                                  path.string(), found.holds, recipe.text("model.name"), wanted, maker));
}

std::uint64_t split_seed(const base::Recipe& recipe) { return static_cast<std::uint64_t>(recipe.integer("data.split_seed")); }

/// The texts of `set` as tokens. `stored` gets the tokenizer when it has none.
base::Result<PairTokens> number_texts(const base::Recipe& recipe, const std::string& keys, const PairSet& set,
                                      StoredData& stored) {
    if (!stored.tokenizer) {
        auto trained = Tokenizer::train(training_texts(set), static_cast<std::int32_t>(recipe.integer(keys + ".vocabulary")));
        if (!trained.ok())
            return recipe.bad(keys + (Tokenizer::available() ? ".vocabulary" : ".enabled"), "cannot number the data's sentences")
                .because(trained.error());
        stored.tokenizer = std::make_shared<const Tokenizer>(std::move(trained).value());
    }
    PairTokens tokens = tokenize(set, *stored.tokenizer, static_cast<std::int32_t>(recipe.integer(keys + ".max_tokens")), stored);
    if (const std::int32_t cut = tokens[0].cut + tokens[1].cut; cut > 0)
        MILLRACE_LOG(warn, "{} of {} sentences are longer than {} and {} tokens and were cut", cut, 2 * set.count,
                     tokens[0].tokens, tokens[1].tokens);
    return tokens;
}

base::Result<LoadedData> load_pairs(const base::Recipe& recipe, const std::string& token_keys, bool training, StoredData stored) {
    MILLRACE_LET(loaded, at_path(recipe, training,
                                 load_pair_set(recipe.text("data.path"), recipe.real("data.validation"), split_seed(recipe))));
    auto set = std::make_shared<const PairSet>(std::move(loaded));
    LoadedData data;
    data.identity = {set->name, std::ssize(set->part(Part::train)), std::ssize(set->part(Part::validation)), 0, set->checksum};
    PairTokens tokens;
    if (!token_keys.empty() && recipe.boolean(token_keys + ".enabled"))
        MILLRACE_SET(tokens, number_texts(recipe, token_keys, *set, stored));
    data.source = std::make_unique<PairSource>(std::move(set), std::move(tokens), stored.tokenizer);
    return data;
}

/// The tokenizer that data.tokenizer asks for, made from the training text.
base::Result<Tokenizer> make_tokenizer(const base::Recipe& recipe, const TextFiles& files) {
    const bool pieces = recipe.text("data.tokenizer") == "sentencepiece";
    if (pieces && !Tokenizer::available())
        return recipe.bad("data.tokenizer",
                          "data.tokenizer = \"sentencepiece\" needs a millrace built with SentencePiece: install Debian's "
                          "libsentencepiece-dev (tools/setup does) and build again, or take \"words\"");
    const auto vocabulary = static_cast<std::int32_t>(recipe.integer("data.vocabulary"));
    auto made = pieces ? piece_tokenizer(files, vocabulary) : word_tokenizer(files, vocabulary);
    if (!made.ok()) return recipe.bad("data.vocabulary", "cannot number the words of the text").because(made.error());
    return made;
}

/// data.path, or the folders below it that data.domains names.
base::Result<std::vector<Path>> text_folders(const base::Recipe& recipe) {
    const Path folder = recipe.text("data.path");
    const std::string& names = recipe.text("data.domains");
    if (names.empty()) return std::vector{folder};
    std::vector<Path> folders;
    for (const std::string& name : base::split(names, ',')) {
        if (name.empty() || name.find_first_of(" \t/") != std::string::npos || std::ranges::count(folders, folder / name) > 0)
            return recipe.bad("data.domains",
                              fmt::format("data.domains = \"{}\": different folders of data.path, with commas and no "
                                          "spaces between them, would be right",
                                          names));
        folders.push_back(folder / name);
    }
    if (folders.size() < 2 || folders.size() > kMostDomains)
        return recipe.bad("data.domains",
                          fmt::format("data.domains names {} folder{}; 2 to {} would be right, or data.path alone",
                                      folders.size(), folders.size() == 1 ? "" : "s", kMostDomains));
    return folders;
}

/// One text, or several as domains of one set. `stored` gets the tokenizer when it has none.
base::Result<TextSet> load_texts(const base::Recipe& recipe, bool training, const std::vector<Path>& folders, std::int32_t length,
                                 StoredData& stored) {
    std::vector<TextFiles> texts;
    TextFiles together{folders.front(), {}};
    for (const Path& folder : folders) {
        MILLRACE_LET(
            files, at_path(recipe, training, read_text_files(folder, recipe.real("data.validation"), recipe.real("data.test"))));
        if (!stored.tokenizer) together.texts.front() += files.texts.front() + (folders.size() > 1 ? "\n" : "");
        texts.push_back(std::move(files));
    }
    if (!stored.tokenizer) {
        MILLRACE_LET(tokenizer, make_tokenizer(recipe, together));
        stored.tokenizer = std::make_shared<const Tokenizer>(std::move(tokenizer));
    }
    std::vector<TextSet> sets;
    for (const TextFiles& files : texts) {
        const auto vocabulary = static_cast<std::int32_t>(recipe.integer("data.vocabulary"));
        MILLRACE_LET(numbered, at_path(recipe, training, number_texts(files, stored.tokenizer, vocabulary, length)));
        sets.push_back(std::move(numbered));
    }
    if (sets.size() == 1) return std::move(sets.front());
    return at_path(recipe, training, join_texts(sets));
}

/// How data.windows_per_epoch and train.epochs divide the learning of several domains.
base::Result<TextStages> text_stages(const base::Recipe& recipe, const std::vector<Domain>& domains) {
    TextStages stages;
    stages.scored = static_cast<std::int32_t>(recipe.integer("data.scored_windows"));
    const std::int64_t wanted = recipe.integer("data.windows_per_epoch");
    if (domains.empty()) {
        if (wanted > 0)
            return recipe.bad("data.windows_per_epoch",
                              "data.windows_per_epoch is for data.domains; an epoch of one text is all of it");
        return stages;
    }
    const auto least = std::ranges::min_element(domains, {}, [](const Domain& domain) { return domain.count(Part::train); });
    if (wanted > least->count(Part::train))
        return recipe.bad(
            "data.windows_per_epoch",
            fmt::format("data.windows_per_epoch = {}, but {} has {} windows of data.length; at most that, or 0, would be right",
                        wanted, least->name, least->count(Part::train)));
    const std::int64_t count = std::ssize(domains), epochs = recipe.integer("train.epochs");
    if (epochs % count != 0)
        return recipe.bad("train.epochs",
                          fmt::format("train.epochs = {} are no whole number for each of {} domains; {} would be right", epochs,
                                      count, (epochs / count + 1) * count));
    stages.windows = static_cast<std::int32_t>(wanted);
    stages.epochs = static_cast<std::uint32_t>(epochs / count);
    return stages;
}

base::Result<LoadedData> load_text(const base::Recipe& recipe, bool training, StoredData stored) {
    MILLRACE_LET(folders, text_folders(recipe));
    const auto length = static_cast<std::int32_t>(recipe.integer("data.length"));
    MILLRACE_LET(loaded, load_texts(recipe, training, folders, length, stored));
    auto set = std::make_shared<const TextSet>(std::move(loaded));
    MILLRACE_LET(stages, text_stages(recipe, ResidentText(set, length).domains()));
    return windows_of(std::move(set), length, stages);
}

DataIdentity identify(const RecordingSet& set) {
    io::Checksum64 sum;
    for (const Recordings& part : set.parts) {
        sum.update(std::as_bytes(std::span(part.features)));
        sum.update(std::as_bytes(std::span(part.labels)));
    }
    const auto windows = [&](Part part) { return std::int64_t{set.part(part).count} * set.windows; };
    return {set.name, windows(Part::train), windows(Part::validation), windows(Part::test), sum.value()};
}

/// Recordings that stand for the whole set where it stays in its files.
base::Status add_some(const FeatureFile& file, io::Checksum64& sum) {
    constexpr std::uint64_t kSome = 16;
    std::vector<std::uint16_t> features(file.values());
    for (std::uint64_t i = 0; i < std::min(kSome, file.count()); ++i) {
        MILLRACE_TRY(
            file.read(i * (file.count() - 1) / std::max<std::uint64_t>(1, std::min(kSome, file.count()) - 1), 1, features));
        sum.update(std::as_bytes(std::span(features)));
    }
    return base::ok();
}

base::Result<DataIdentity> identify_streamed(const RecordingSet& set) {
    io::Checksum64 sum;
    for (const Part part : kAllParts) {
        sum.update(std::as_bytes(std::span(set.part(part).labels)));
        if (set.file(part)) MILLRACE_TRY(add_some(*set.file(part), sum));
    }
    DataIdentity identity = identify(set);
    identity.checksum = sum.value();
    identity.streamed = true;
    return identity;
}

base::Result<LoadedData> stream_recordings(const base::Recipe& recipe, RecordingSet loaded, bool training) {
    if (training && recipe.integer("data.oversample") > 1)
        return recipe.bad("data.oversample",
                          fmt::format("data.oversample = {} needs resident data; data.oversample = 1 or data.mode = \"resident\" "
                                      "would be right",
                                      recipe.integer("data.oversample")));
    const auto set = std::make_shared<const RecordingSet>(std::move(loaded));
    LoadedData data;
    MILLRACE_SET(data.identity, at_path(recipe, training, identify_streamed(*set)));
    auto source = StreamedSource::create(streamed(set, static_cast<std::int32_t>(recipe.integer("data.mask"))),
                                         read_stream_options(recipe, training));
    if (!source.ok()) return recipe.bad("data.window", source.error().message);
    data.source = std::move(source).value();
    return data;
}

base::Result<LoadedData> load_recordings(const base::Recipe& recipe, bool training, const StoredData& stored,
                                         const ChooseStream& choose) {
    MILLRACE_LET(bytes, at_path(recipe, training, resident_recording_bytes(recipe.text("data.path"))));
    bool stream = false;
    if (choose) MILLRACE_SET(stream, choose(bytes));
    const RecordingRequest request{recipe.text("data.positive"), recipe.boolean("data.binary"), stored.scaling, !stream};
    MILLRACE_LET(loaded, at_path(recipe, training, load_recording_set(recipe.text("data.path"), request)));
    if (stream) return stream_recordings(recipe, std::move(loaded), training);
    auto set = std::make_shared<const RecordingSet>(std::move(loaded));
    LoadedData data;
    data.identity = identify(*set);
    const RecordingOptions options{static_cast<std::int32_t>(recipe.integer("data.oversample")),
                                   static_cast<std::int32_t>(recipe.integer("data.mask"))};
    data.source = std::make_unique<ResidentRecordings>(std::move(set), options);
    return data;
}

}  // namespace

void add_data_keys(base::Schema& schema, DataKind kind) {
    schema.choice("data.mode", "auto", {"auto", "resident", "stream"},
                  "resident: in device memory; stream: read while training; auto: resident when it fits");
    if (kind == DataKind::recordings) {
        schema.text("data.path", "data/hydrophone",
                    "folder with TRAINING_DATASET.H5, VALIDATION_DATASET.H5 and TESTING_DATASET.H5");
        schema.text("data.positive", "", "the class that is looked for; empty: LEAK, or else label 1 of two");
        schema.boolean("data.binary", true, "that class against all others together");
        schema.integer("data.oversample", 1, "how often an epoch takes the windows of the class looked for").between(1, 1000);
        schema.integer("data.mask", 0, "the most neighbouring bands that are hidden from a training window").between(0, 65536);
        add_stream_keys(schema);
        return;
    }
    if (kind == DataKind::text) {
        schema.text("data.path", "data/text", "folder with train.txt, valid.txt and test.txt, in UTF-8, or one such file");
        add_part_keys(schema, "one file");
        schema.choice("data.tokenizer", "words", {"words", "sentencepiece"},
                      "words: whole words in lower case, cut at white space; sentencepiece: parts of words by frequency");
        schema
            .integer("data.vocabulary", 10000, "tokens of the model; words: four special ones and the most frequent of train.txt")
            .between(kSpecialWords + 1, kMostWords);
        schema.integer("data.length", 64, "tokens that a window predicts").between(1, 1 << 20);
        schema.integer("data.scored_windows", 0, "windows of a text that validation and test score, the first ones; 0: all")
            .between(0, 2147483647);
        schema.text("data.domains", "",
                    "folders below data.path that are learned one after the other, with commas; empty: data.path is one text");
        schema.integer("data.windows_per_epoch", 0, "data.domains: windows of an epoch; 0: as many as the smallest domain has")
            .between(0, 2147483647);
        return;
    }
    if (kind == DataKind::samples) return add_sample_keys(schema);
    schema.text("data.path", "data/pairs", "folder with pairs.safetensors and pairs.jsonl");
    schema.real("data.validation", 0.1, "share of the pairs set aside to select the best weights").at_least(0).below(1);
    schema.integer("data.split_seed", 42, "decides which pairs are set aside").at_least(0);
}

LoadedData windows_of(std::shared_ptr<const TextSet> set, std::int32_t length, const TextStages& stages) {
    LoadedData data;
    data.unit = unit_of(DataKind::text);
    auto source = std::make_unique<ResidentText>(set, length, stages);
    data.domains = source->domains();
    data.identity = {set->name, source->samples(Part::train), source->samples(Part::validation), source->samples(Part::test),
                     set->checksum()};
    data.source = std::move(source);
    return data;
}

base::Result<std::shared_ptr<const TextSet>> load_whole_text(const base::Recipe& recipe, const io::Path& path,
                                                             const StoredData& stored) {
    const auto vocabulary = static_cast<std::int32_t>(recipe.integer("data.vocabulary"));
    const auto length = static_cast<std::int32_t>(recipe.integer("data.length"));
    if (const FormWords& found = words_of(form_of(path)); found.form != Form::unknown && found.kind != DataKind::text)
        return Error{fmt::format("holds {}; text would be right", found.holds), path.string()};
    MILLRACE_LET(text, read_text_file(path));
    MILLRACE_LET(set, number_texts({path, {"", "", std::move(text)}}, stored.tokenizer, vocabulary, length));
    return std::make_shared<const TextSet>(std::move(set));
}

base::Result<LoadedData> load_data(const base::Recipe& recipe, DataKind kind, const std::string& token_keys, bool training,
                                   const StoredData& stored, const ChooseStream& stream) {
    if (kind != DataKind::recordings) MILLRACE_TRY(check_kind(recipe, kind));
    auto loaded = kind == DataKind::recordings ? load_recordings(recipe, training, stored, stream)
                  : kind == DataKind::text     ? load_text(recipe, training, stored)
                  : kind == DataKind::pairs    ? load_pairs(recipe, token_keys, training, stored)
                                               : load_samples(recipe, training, stored, stream);
    if (loaded.ok() && loaded->unit.empty()) loaded->unit = unit_of(kind);
    return loaded;
}

}  // namespace millrace::data
