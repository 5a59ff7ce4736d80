#include "models/json_schema.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "json-schema.h"
#include "models/schema_forms.h"
#include "models/schema_pattern.h"

namespace everwarm::models {
namespace {

using Json = SchemaJson;

// The converter recurses along references, on the caller's stack.
constexpr size_t kMaxReferences = 256;
// Its integers have 16 digits, and so have those that all of JSON's readers
// take.
constexpr double kLargestBound = 9007199254740991.0;

// Others as regular expressions, none wider than the format.
const absl::flat_hash_map<std::string_view, std::string_view>&
FormatPatterns() {
  static const auto* const patterns = new absl::flat_hash_map<std::string_view,
                                                              std::string_view>{
      {"email",
       "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@([A-Za-z0-9]+(-[A-Za-z0-9]+)"
       "*\\.)+[A-Za-z]{2,}$"},
      {"hostname",
       "^[A-Za-z0-9]+(-[A-Za-z0-9]+)*(\\.[A-Za-z0-9]+(-[A-Za-z0-9]+)*)*$"},
      {"ipv4",
       "^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}"
       "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$"},
      {"ipv6",
       "^(([0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}|::|"
       "::[0-9A-Fa-f]{1,4}(:[0-9A-Fa-f]{1,4}){0,5}|"
       "[0-9A-Fa-f]{1,4}::([0-9A-Fa-f]{1,4}(:[0-9A-Fa-f]{1,4}){0,4})?|"
       "[0-9A-Fa-f]{1,4}(:[0-9A-Fa-f]{1,4}){1,3}::"
       "([0-9A-Fa-f]{1,4}(:[0-9A-Fa-f]{1,4}){0,1})?)$"},
      // With an authority: most of what is meant, and no URI but that.
      {"uri",
       "^[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9-]+(\\.[A-Za-z0-9-]+)*"
       "(:[0-9]{1,5})?(/[A-Za-z0-9._~!$&'*+,;=:@-]*)*"
       "(\\?[A-Za-z0-9._~!$&'*+,;=:@/-]*)?(#[A-Za-z0-9._~!$&'*+,;=:@/-]*)?$"},
      {"duration",
       "^P([0-9]+W|([0-9]+Y)?([0-9]+M)?[0-9]+D(T[0-9]+H([0-9]+M"
       "([0-9]+S)?)?|T[0-9]+M([0-9]+S)?|T[0-9]+S)?|[0-9]+Y([0-9]+M)?|"
       "[0-9]+M|T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|"
       "[0-9]+S))$"}};
  return *patterns;
}

class SchemaReader {
 public:
  explicit SchemaReader(SchemaUse use) : strict_(use == SchemaUse::kStrict) {}

  absl::Status Read(Json& root) {
    EW_RETURN_IF_ERROR(Visit(root, "#"));
    if (references_.size() > kMaxReferences) {
      return Wrong(
          "#", absl::StrCat("has ", references_.size(), " references; at most ",
                            kMaxReferences, " can be followed"));
    }
    if (refers_to_root_) {
      DefineRoot(root);
    }
    for (const std::string& reference : references_) {
      EW_RETURN_IF_ERROR(Follow(root, reference));
    }
    return absl::OkStatus();
  }

  bool changed() const { return changed_; }

 private:
  static absl::Status Wrong(const std::string& path, const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat("the schema at '", path, "' ", what));
  }
  absl::Status NotHeldTo(const std::string& path, const std::string& keyword,
                         const std::string& why) const {
    if (!strict_) {
      return absl::OkStatus();
    }
    return Wrong(path,
                 absl::StrCat("has '", keyword, "', ", why,
                              "; 'strict' asks for a reply that fits in full"));
  }

  absl::Status Visit(Json& node, const std::string& path) {
    if (node == true) {
      Replace(node, Json::object());
    }
    EW_RETURN_IF_ERROR(Unwrap(node, path));
    EW_RETURN_IF_ERROR(CheckType(node, path));
    // A tuple is that long anyway.
    if (node.contains("prefixItems") && node.contains("items") &&
        node["items"] == false) {
      node.erase("items");
      changed_ = true;
    }
    EW_RETURN_IF_ERROR(ReadString(node, path));
    EW_RETURN_IF_ERROR(CheckCounts(node, path));
    EW_RETURN_IF_ERROR(CheckBounds(node, path));
    if (strict_) {
      EW_RETURN_IF_ERROR(CheckFollowed(node, path));
    }
    if (const auto reference = node.find("$ref");
        reference != node.end() && reference->is_string()) {
      EW_RETURN_IF_ERROR(NoteReference(*reference));
    }
    return VisitInner(node, path);
  }

  void Replace(Json& node, Json with) {
    node = std::move(with);
    changed_ = true;
  }

  // The converter reads an "allOf" of anything but objects as one of objects.
  absl::Status Unwrap(Json& node, const std::string& path) {
    for (;;) {
      if (!node.is_object()) {
        return Wrong(path, "is not an object");
      }
      const auto all = node.find("allOf");
      if (all == node.end() || !all->is_array() || all->size() != 1 ||
          !all->front().is_object()) {
        return absl::OkStatus();
      }
      Json inner = all->front();
      for (const auto& [key, value] : node.items()) {
        if (key == "allOf") {
          continue;
        }
        if (ConcernsOf(key) != 0) {
          return absl::OkStatus();
        }
        inner[key] = value;
      }
      Replace(node, std::move(inner));
    }
  }

  static absl::Status CheckType(const Json& node, const std::string& path) {
    const auto type = node.find("type");
    if (type == node.end() || !type->is_array()) {
      return absl::OkStatus();
    }
    // Each makes a copy of all that is inside.
    SchemaTypes seen = 0;
    for (const Json& one : *type) {
      if ((seen & TypesNamed(one)) != 0) {
        return Wrong(path, "names a type twice");
      }
      if (TypesNamed(one) == 0) {
        return Wrong(path, "has a 'type' that is none");
      }
      seen |= TypesNamed(one);
    }
    return absl::OkStatus();
  }

  // "pattern" and "format".
  absl::Status ReadString(Json& node, const std::string& path) {
    const auto format = node.find("format");
    if (strict_ && format != node.end() && format->is_string() &&
        !node.contains("pattern")) {
      const auto known =
          FormatPatterns().find(format->get_ref<const std::string&>());
      if (known != FormatPatterns().end()) {
        Json with;
        for (const auto& [key, value] : node.items()) {
          if (key == "format") {
            with["pattern"] = std::string(known->second);
          } else {
            with[key] = value;
          }
        }
        Replace(node, std::move(with));
      }
    }
    const auto pattern = node.find("pattern");
    if (pattern == node.end() || !pattern->is_string()) {
      return absl::OkStatus();
    }
    const std::string& text = pattern->get_ref<const std::string&>();
    absl::StatusOr<std::string> followable = FollowablePattern(text);
    if (absl::IsInvalidArgument(followable.status())) {
      return Wrong(path, absl::StrCat("has a 'pattern' that is no regular "
                                      "expression: ",
                                      followable.status().message()));
    }
    if (!followable.ok()) {
      EW_RETURN_IF_ERROR(
          NotHeldTo(path, "pattern",
                    absl::StrCat("with what no grammar can express: ",
                                 followable.status().message())));
      node.erase("pattern");
      changed_ = true;
    } else if (*followable != text) {
      *pattern = *std::move(followable);
      changed_ = true;
    }
    return absl::OkStatus();
  }

  absl::Status CheckCounts(Json& node, const std::string& path) {
    for (const auto& [least, most] :
         {std::pair("minItems", "maxItems"), {"minLength", "maxLength"}}) {
      std::optional<uint64_t> counts[2];
      for (const int i : {0, 1}) {
        const char* const key = i == 0 ? least : most;
        const auto found = node.find(key);
        if (found == node.end()) {
          continue;
        }
        if (!found->is_number_unsigned()) {
          return Wrong(path, absl::StrCat("has a '", key,
                                          "' that is no "
                                          "number of 0 or more"));
        }
        counts[i] = found->get<uint64_t>();
        if (*counts[i] > kMaxRepetitions) {
          EW_RETURN_IF_ERROR(NotHeldTo(
              path, key, absl::StrCat("more than ", kMaxRepetitions)));
          node.erase(key);
          changed_ = true;
        }
      }
      if (counts[0] && counts[1] && *counts[0] > *counts[1]) {
        return Wrong(path,
                     absl::StrCat("has a '", least, "' of ", *counts[0],
                                  " above its '", most, "' of ", *counts[1]));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckBounds(Json& node, const std::string& path) {
    std::optional<double> least;
    std::optional<double> most;
    for (const char* const key :
         {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const auto found = node.find(key);
      if (found == node.end()) {
        continue;
      }
      // As older drafts have it: whether "minimum" itself is out.
      const bool old = found->is_boolean() && std::string_view(key)[0] == 'e';
      if (!found->is_number() && !old) {
        return Wrong(path, absl::StrCat("has a '", key, "' that is no number"));
      }
      if (old || !(std::abs(found->get<double>()) <= kLargestBound)) {
        EW_RETURN_IF_ERROR(NotHeldTo(
            path, key,
            old ? "true or false instead of a number"
                : "beyond what integers can be held to, 9007199254740991"));
        node.erase(key);
        changed_ = true;
        continue;
      }
      const double bound = found->get<double>();
      if (std::string_view(key).ends_with("inimum")) {
        least = std::max(least.value_or(bound), bound);
      } else {
        most = std::min(most.value_or(bound), bound);
      }
    }
    if (least && most && *least > *most) {
      return Wrong(path, absl::StrCat("has a minimum of ", *least,
                                      " above its maximum of ", *most));
    }
    return absl::OkStatus();
  }

  // --- What the converter goes by ---

  absl::Status CheckFollowed(const Json& node, const std::string& path) const {
    const SchemaForm form = FormOf(node);
    for (const auto& [key, value] : node.items()) {
      if (form.Follows(key) || (ConcernsOf(key) & form.types) == 0 ||
          SaysNothing(key, value)) {
        continue;
      }
      EW_RETURN_IF_ERROR(NotHeldTo(path, key, WhyNotFollowed(node, key)));
    }
    EW_RETURN_IF_ERROR(CheckRequired(node, path));
    return CheckValues(node, path);
  }

  static bool SaysNothing(const std::string& key, const Json& value) {
    return ((key == "uniqueItems" || key == "additionalItems") &&
            value == false) ||
           ((key == "minProperties" || key == "minContains") && value == 0);
  }

  absl::Status CheckRequired(const Json& node, const std::string& path) const {
    const auto required = node.find("required");
    if (required == node.end()) {
      return absl::OkStatus();
    }
    const auto properties = node.find("properties");
    if (required->is_array() && properties != node.end() &&
        properties->is_object() &&
        std::all_of(required->begin(), required->end(), [&](const Json& name) {
          return name.is_string() && properties->contains(name);
        })) {
      return absl::OkStatus();
    }
    if (required->is_array() && required->empty()) {
      return absl::OkStatus();
    }
    return NotHeldTo(path, "required",
                     "which does not only name some of its 'properties'");
  }

  // Of "const" and "enum", which the converter follows whatever the type.
  absl::Status CheckValues(const Json& node, const std::string& path) const {
    const auto type = node.find("type");
    if (type == node.end() || node.contains("$ref")) {
      return absl::OkStatus();
    }
    SchemaTypes types = 0;
    for (const Json& one : type->is_array() ? *type : Json::array({*type})) {
      types |= TypesNamed(one);
    }
    for (const char* const key : {"const", "enum"}) {
      const auto found = node.find(key);
      if (found == node.end()) {
        continue;
      }
      const Json values = std::string_view(key) == "enum" && found->is_array()
                              ? *found
                              : Json::array({*found});
      for (const Json& value : values) {
        if ((TypesOf(value) & types) == 0) {
          EW_RETURN_IF_ERROR(
              NotHeldTo(path, key, "with a value that is not of its 'type'"));
        }
      }
    }
    return absl::OkStatus();
  }

  // --- What is inside ---

  absl::Status VisitInner(Json& node, const std::string& path) {
    for (const char* const key : {"properties", "$defs", "definitions"}) {
      const auto found = node.find(key);
      if (found == node.end() || !found->is_object()) {
        continue;
      }
      for (auto& [name, inner] : found->items()) {
        EW_RETURN_IF_ERROR(
            Visit(inner, absl::StrCat(path, "/", key, "/", name)));
      }
    }
    for (const char* const key :
         {"anyOf", "oneOf", "allOf", "prefixItems", "items"}) {
      const auto found = node.find(key);
      if (found == node.end() || !found->is_array()) {
        continue;
      }
      for (size_t i = 0; i < found->size(); ++i) {
        EW_RETURN_IF_ERROR(
            Visit((*found)[i], absl::StrCat(path, "/", key, "/", i)));
      }
    }
    if (const auto items = node.find("items");
        items != node.end() && !items->is_array()) {
      EW_RETURN_IF_ERROR(Visit(*items, absl::StrCat(path, "/items")));
    }
    if (const auto more = node.find("additionalProperties");
        more != node.end() && more->is_object()) {
      EW_RETURN_IF_ERROR(
          Visit(*more, absl::StrCat(path, "/additionalProperties")));
    }
    return absl::OkStatus();
  }

  // --- References ---

  absl::Status NoteReference(Json& reference) {
    if (reference == "#") {
      refers_to_root_ = true;
      reference = kRoot;
      changed_ = true;
    }
    references_.push_back(reference.get<std::string>());
    return absl::OkStatus();
  }

  static void DefineRoot(Json& root) {
    Json copy = root;
    copy.erase("$defs");
    copy.erase("definitions");
    if (!root.contains("$defs") || !root["$defs"].is_object()) {
      root["$defs"] = Json::object();
    }
    root["$defs"][std::string(kRootName)] = std::move(copy);
  }

  // The converter would follow references that only lead to one another.
  absl::Status Follow(const Json& root, const std::string& reference) {
    absl::flat_hash_set<std::string> way;
    std::string at = reference;
    while (!followed_.contains(at)) {
      if (!way.insert(at).second) {
        return Wrong("#", absl::StrCat("has a reference '", reference,
                                       "' that leads to itself"));
      }
      const Json* const target = Resolve(root, at);
      if (target == nullptr || !target->is_object()) {
        return Wrong("#", absl::StrCat("has a reference to '", at,
                                       "', where no schema is"));
      }
      const auto next = target->find("$ref");
      if (next == target->end() || !next->is_string()) {
        break;
      }
      at = next->get<std::string>();
    }
    followed_.insert(way.begin(), way.end());
    return absl::OkStatus();
  }

  static const Json* Resolve(const Json& root, const std::string& reference) {
    if (reference.rfind("#/", 0) != 0) {
      return nullptr;
    }
    const Json* at = &root;
    const std::vector<std::string> names =
        absl::StrSplit(reference.substr(2), '/');
    for (const std::string& name : names) {
      if (at->is_object() && at->contains(name)) {
        at = &at->at(name);
        continue;
      }
      size_t index = 0;
      if (!at->is_array() || !absl::SimpleAtoi(name, &index) ||
          index >= at->size()) {
        return nullptr;
      }
      at = &(*at)[index];
    }
    return at;
  }

  static constexpr char kRoot[] = "#/$defs/whole-schema";
  static constexpr std::string_view kRootName = "whole-schema";

  const bool strict_;
  bool changed_ = false;
  bool refers_to_root_ = false;
  std::vector<std::string> references_;
  // Those that lead to a schema.
  absl::flat_hash_set<std::string> followed_;
};

}  // namespace

absl::StatusOr<std::string> FollowableSchema(const std::string& schema,
                                             SchemaUse use) {
  Json root = Json::parse(schema, nullptr, false);
  if (root.is_discarded()) {
    return absl::InvalidArgumentError("the schema is not JSON");
  }
  SchemaReader reader(use);
  EW_RETURN_IF_ERROR(reader.Read(root));
  std::string text = reader.changed() ? root.dump() : schema;
  try {
    (void)common_chat_schema_from_json(common_json::parse(text));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return text;
}

}  // namespace everwarm::models
