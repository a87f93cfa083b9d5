/* page.js: the page of attention pictures. */
