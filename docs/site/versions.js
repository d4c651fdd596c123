// The versions of the site that lie beside this one, in the header: the same page of each, or its first.
// Material's own list reads a JSON file, which a page that is opened from a file can't do.
{
  const root = new URL("..", document.currentScript.src);
  const all = new URL("../", root);
  const own = root.pathname.split("/").at(-2);
  const page = location.pathname.slice(root.pathname.length);
  const list = document.createElement("script");
  list.src = new URL("versions.js", all);
  list.onload = () => {
    const item = ([version, pages]) => {
      const to = new URL(`${version}/${pages.includes(page) ? page : "index.html"}`, all);
      return `<li class="md-version__item"><a class="md-version__link" href="${to}">${version}</a></li>`;
    };
    const shown = document.createElement("div");
    shown.className = "md-version";
    shown.innerHTML = `<button class="md-version__current" aria-label="Select version">${own}</button>
      <ul class="md-version__list">${Object.entries(siteVersions).map(item).join("")}</ul>`;
    document.querySelector(".md-header__topic")?.append(shown);
  };
  document.head.append(list);
}
